"""Records of one problem, device and shape -> the page's parts, as values. Drawn by charts, set by the template."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from kernel_harness import charts, leaderboard, timing
from kernel_harness.status import Status
from kernel_harness.timing import Comparison, Interval

Record = Mapping[str, Any]

# Facts that change from run to run and say nothing about what was measured.
_PASSING = ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "throttle_reasons")
_UNITS = {"memory_bytes": (2**30, "GiB"), "l2_bytes": (2**20, "MiB")}


@dataclass(frozen=True)
class Picture:
    """A chart in both widths, and what it shows in words."""

    wide: str
    narrow: str
    words: str


@dataclass(frozen=True)
class Page:
    """What is known about the kernels at one shape on one device. `latest` is each kernel's record that counts."""

    records: Sequence[Record]
    shape: Mapping[str, int]

    def __post_init__(self) -> None:
        at_shape = [r for r in self.records if r["shape"] == dict(self.shape)]
        object.__setattr__(self, "records", at_shape)

    @property
    def latest(self) -> dict[str, Record]:
        """By kernel, in the leaderboard's order."""
        found = leaderboard.latest(self.records, self.shape)
        return {name: found[name] for name in map(str, self.table["kernel"])}

    @property
    def table(self) -> pd.DataFrame:
        """The leaderboard."""
        return leaderboard.rank(self.records, self.shape)

    @property
    def emulated(self) -> bool:
        """Whether times are an emulation's."""
        return bool((self.table["device"] == leaderboard.EMULATED).any())


def rows(page: Page) -> list[dict[str, Any]]:
    """The leaderboard's rows with what the page says beside them; absent values are None."""
    latest = page.latest
    found = []
    for row in page.table.to_dict("records"):
        clean: dict[str, Any] = {str(k): None if _missing(v) else v for k, v in row.items()}
        record = latest[clean["kernel"]]
        clean["title"] = record["title"]
        clean["baseline"] = record["kind"] == "baseline"
        clean["versus"] = None if page.emulated or clean["baseline"] else _versus(record)
        found.append(clean)
    return found


def _missing(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def _versus(record: Record) -> Comparison | None:
    speedup = (record["timing"] or {}).get("speedup")
    return timing.compare(Interval(**speedup)) if speedup else None


def _timed(page: Page, *, baseline: bool) -> list[Record]:
    kinds = ("candidate", "baseline") if baseline else ("candidate",)
    return [r for r in page.latest.values() if r["timing"] and r["kind"] in kinds]


def _drawn(draw: Any, words: str) -> Picture:
    return Picture(draw(charts.WIDE), draw(charts.NARROW), words)


def speed_picture(page: Page) -> Picture | None:
    """Speedups over the baseline; under emulation times, since a ratio there says nothing either."""
    if page.emulated:
        bars = [_time_bar(r) for r in _timed(page, baseline=True)]
        words = "Milliseconds per call of each kernel with their 95% intervals, fastest first."
        return _drawn(lambda width: charts.times(bars, width), words) if bars else None
    bars = [_speed_bar(r) for r in _timed(page, baseline=False) if r["timing"]["speedup"]]
    words = "Speedup of each kernel over torch with its 95% interval, fastest first."
    return _drawn(lambda width: charts.speedups(bars, width, "torch"), words) if bars else None


def _speed_bar(record: Record) -> charts.Bar:
    speedup = Interval(**record["timing"]["speedup"])
    return charts.Bar(record["kernel"], speedup, interval_text(speedup, "×"), timing.compare(speedup).value)


def _time_bar(record: Record) -> charts.Bar:
    t = record["timing"]
    time = Interval(t["time_ms_low"], t["time_ms"], t["time_ms_high"])
    colour = "undecided" if record["kind"] == "baseline" else "same"
    return charts.Bar(record["kernel"], time, interval_text(time, " ms"), colour)


def interval_text(value: Interval, unit: str) -> str:
    """`1.02× (0.98 - 1.07)`."""
    if value.low is None or value.high is None:
        return f"{value.estimate:.3g}{unit}"
    return f"{value.estimate:.3g}{unit} ({value.low:.3g} – {value.high:.3g})"


def roofline_picture(page: Page) -> Picture | None:
    """None where the device's peaks or the problem's work are not known, or nothing was timed."""
    timed = [r for r in _timed(page, baseline=True) if r["numbers"].get("flops") and r["numbers"].get("bytes")]
    roofs = _roofs(timed)
    if not timed or not roofs or page.emulated:
        return None
    numbers = timed[0]["numbers"]
    shares = {row["kernel"]: row["percent_of_peak"] for row in rows(page)}
    points = []
    for record in timed:
        rate, share = numbers["flops"] / record["timing"]["time_ms"] * 1e3, shares[record["kernel"]]
        percent = "" if share is None else f", {share:.3g}%"
        points.append(charts.Point(record["kernel"], rate, f"{rate / 1e12:.3g} TFLOPS{percent}"))
    intensity = numbers["flops"] / numbers["bytes"]
    words = f"Roofline: the kernels at {intensity:.4g} FLOPs per byte under the device's roofs."
    return _drawn(lambda width: charts.roofline(points, intensity, roofs, width), words)


def _roofs(timed: Sequence[Record]) -> list[charts.Roof]:
    """Of every number format that the kernels compute in, on paper and as measured."""
    found = {}
    for record in timed:
        name, numbers = record["precision"] or "float32", record["numbers"]
        for source in ("peak", "ceiling"):
            speed, rate = numbers.get(f"{source}_bytes_per_s"), numbers.get(f"{source}_{name}_flops_per_s")
            if speed and rate:
                found[name, source] = charts.Roof(speed, rate, name, source == "ceiling")
    return list(found.values())


def samples_picture(page: Page) -> Picture | None:
    """Every timed call of the latest timing."""
    timed = [(r["kernel"], r["timing"]["samples_ms"]) for r in _timed(page, baseline=True)]
    words = "Each timed call of each kernel, with its median."
    return _drawn(lambda width: charts.samples(timed, width), words) if timed else None


def phases_picture(page: Page) -> Picture | None:
    """Seconds of building and checking; failures took them too."""
    found = []
    for record in page.latest.values():
        build, check = (record["phases_s"].get(name, 0.0) for name in ("build", "check"))
        if record["kind"] == "candidate" and build + check > 0:
            cached = bool(record["builds"]) and all(b.get("cached") for b in record["builds"])
            text = f"{build:.1f} s{' cached' if cached else ''} + {check:.1f} s"
            found.append((record["kernel"], build, check, text))
    words = "Seconds that building and checking took."
    return _drawn(lambda width: charts.phases(found, width), words) if found else None


def runs(page: Page) -> list[dict[str, Any]]:
    """Every run, latest first: its name, when, the commit, and what became of each kernel."""
    found: dict[str, dict[str, Any]] = {}
    for record in page.records:
        one = found.setdefault(record["run"], {"kernels": {}, "baseline_ms": None})
        environment = record["environment"]
        one.update(measured_at=record["measured_at"], commit=environment.get("commit"), dirty=environment.get("dirty"))
        if record["kind"] == "candidate":
            one["kernels"][record["kernel"]] = record["status"]
        elif record["timing"]:
            one["baseline_ms"] = record["timing"]["time_ms"]
    counted = [
        {"run": name, **one, "failed": [k for k, status in one["kernels"].items() if status != Status.PASSED]}
        for name, one in found.items()
    ]
    return counted[::-1]


def history_picture(page: Page) -> Picture | None:
    """The fastest kernels over the runs that timed something; None with a single run."""
    timed = [r for r in page.records if r["timing"]]
    names = list(dict.fromkeys(r["run"] for r in timed))
    if len(names) < 2:
        return None
    shown = [r["kernel"] for r in _timed(page, baseline=page.emulated)][: charts.SERIES]
    series = [charts.Series(kernel, _points(timed, names, kernel, page.emulated)) for kernel in shown]
    series = [s for s in series if s.values]
    label, form = ("ms per call", "{:.3g}") if page.emulated else ("speedup over torch", "{:.3g}×")
    dates = {r["run"]: r["measured_at"][5:16].replace("T", " ") for r in timed}
    words = f"The {label} of each kernel in each run."
    ticks = [dates[name] for name in names]
    return _drawn(lambda width: charts.history(series, ticks, form, label, width), words) if series else None


def _points(
    timed: Sequence[Record], names: Sequence[str], kernel: str, emulated: bool
) -> list[tuple[int, Interval, bool]]:
    found: dict[int, tuple[int, Interval, bool]] = {}
    source = None
    for record in (r for r in timed if r["kernel"] == kernel):
        t = record["timing"]
        if not emulated and t["speedup"] is None:
            continue
        value = Interval(t["time_ms_low"], t["time_ms"], t["time_ms_high"]) if emulated else Interval(**t["speedup"])
        index = names.index(record["run"])
        found[index] = (index, value, source is not None and source != record["source_sha256"])
        source = record["source_sha256"]
    return list(found.values())


def environment(page: Page) -> list[tuple[str, list[tuple[str, str]]]]:
    """(fact, [(value, which kernels)]): one value where all were measured alike."""
    facts: dict[str, dict[str, list[str]]] = {}
    latest = page.latest
    for name, record in latest.items():
        for fact, value in {**record["environment"], **_measurement(record)}.items():
            if fact not in _PASSING and value is not None:
                facts.setdefault(fact, {}).setdefault(_fact_text(fact, value), []).append(name)
    return [
        (fact.replace("_", " "), [(value, "" if len(values) == 1 else ", ".join(k)) for value, k in values.items()])
        for fact, values in facts.items()
    ]


def _measurement(record: Record) -> dict[str, Any]:
    settings = record["settings"]
    tolerance = settings.get("tolerance") or {}
    return {
        "isolation": settings.get("isolation"),
        "tolerance": ", ".join(f"{k} {v:g}" for k, v in tolerance.items()) or None,
        "allowed_precision": settings.get("allowed_precision"),
        "run": record["run"],
    }


def _fact_text(fact: str, value: Any) -> str:
    if fact in _UNITS:
        size, unit = _UNITS[fact]
        return f"{value / size:.4g} {unit}"
    if fact == "dirty":
        return "yes, the checkout had changes" if value else "no"
    text = ".".join(map(str, value)) if isinstance(value, list) else str(value)
    lines = [line for line in text.split("\n") if line.strip()]
    return next((line for line in lines if "release" in line), lines[-1] if lines else "")


def failures(page: Page) -> list[dict[str, Any]]:
    """Each kernel that failed: what, why, where its errors are, and how to see it again."""
    return [
        {
            "kernel": r["kernel"], "status": r["status"], "sentence": Status(r["status"]).sentence,
            "reason": r["reason"], "log": r["log"] if r["log"].strip() != r["reason"].strip() else "",
            "reproduce": r["reproduce"], "checks": [c for c in r["checks"] if c["status"] != Status.PASSED],
        }
        for r in page.latest.values()
        if r["status"] != Status.PASSED
    ]  # fmt: skip


def map_spans(error_map: Mapping[str, Any]) -> list[tuple[int, int, int, float]]:
    """The cells of a map of errors that hold any: (row, first column, columns, share), neighbours alike as one."""
    spans: list[tuple[int, int, int, float]] = []
    for row, cells in enumerate(error_map["cells"]):
        for column, share in enumerate(cells):
            last = spans[-1] if spans else None
            if share and last and last[0] == row and last[1] + last[2] == column and last[3] == share:
                spans[-1] = (row, last[1], last[2] + 1, share)
            elif share:
                spans.append((row, column, 1, share))
    return spans
