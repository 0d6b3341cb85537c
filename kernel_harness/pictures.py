"""A page's records -> its charts, in both widths. How a chart is drawn is charts' affair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernel_harness import charts, timing
from kernel_harness.page import Page, Record, rows
from kernel_harness.sheet import NARROW, WIDE
from kernel_harness.timing import Interval

MOST_ROWS, MOST_POINTS = 40, 14
"""The fastest that a chart shows; of hundreds nobody could tell one from the next."""


@dataclass(frozen=True)
class Picture:
    """A chart in both widths, and what it shows in words."""

    wide: str
    narrow: str
    words: str


def _timed(page: Page, *, baseline: bool) -> list[Record]:
    kinds = ("candidate", "baseline") if baseline else ("candidate",)
    return [r for r in page.latest.values() if r["timing"] and r["kind"] in kinds][:MOST_ROWS]


def _drawn(draw: Callable[[int], str], words: str) -> Picture:
    return Picture(draw(WIDE), draw(NARROW), words)


def speed(page: Page) -> Picture | None:
    """Speedups over the baseline; under emulation times, since a ratio there says nothing either."""
    if page.emulated:
        bars = [_time_bar(r) for r in _timed(page, baseline=True)]
        words = "Milliseconds per call of each kernel with their 95% intervals, fastest first."
        return _drawn(lambda width: charts.times(bars, width), words) if bars else None
    timed = [r for r in _timed(page, baseline=True) if r["kernel"] != r["settings"]["baseline"]]
    bars = [_speed_bar(r) for r in timed if r["timing"]["speedup"]]
    words = f"Speedup of each kernel over {page.baseline} with its 95% interval, fastest first."
    return _drawn(lambda width: charts.speedups(bars, width, page.baseline), words) if bars else None


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


def roofline(page: Page) -> Picture | None:
    """None where the device's peaks or the problem's work are not known, or nothing was timed."""
    timed = [r for r in _timed(page, baseline=True) if r["numbers"].get("flops") and r["numbers"].get("bytes")]
    timed = timed[:MOST_POINTS]
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


def samples(page: Page) -> Picture | None:
    """Every timed call of the latest timing."""
    timed = [(r["kernel"], r["timing"]["samples_ms"]) for r in _timed(page, baseline=True)]
    words = "Each timed call of each kernel, with its median."
    return _drawn(lambda width: charts.samples(timed, width), words) if timed else None


def phases(page: Page) -> Picture | None:
    """Seconds of building and checking; failures took them too."""
    found = []
    for record in page.latest.values():
        build, check = (record["phases_s"].get(name, 0.0) for name in ("build", "check"))
        if record["kind"] == "candidate" and build + check > 0:
            cached = bool(record["builds"]) and all(b.get("cached") for b in record["builds"])
            text = f"{build:.1f} s{' cached' if cached else ''} + {check:.1f} s"
            found.append((record["kernel"], build, check, text))
    found = found[:MOST_ROWS]
    words = "Seconds that building and checking took."
    return _drawn(lambda width: charts.phases(found, width), words) if found else None


def history(page: Page) -> Picture | None:
    """The fastest kernels over the runs that timed something; None with a single run."""
    timed = [r for r in page.records if r["timing"]]
    names = list(dict.fromkeys(r["run"] for r in timed))
    if len(names) < 2:
        return None
    shown = [r["kernel"] for r in _timed(page, baseline=page.emulated)][: charts.SERIES]
    series = [charts.Series(kernel, _points(timed, names, kernel, page.emulated)) for kernel in shown]
    series = [s for s in series if s.values]
    label, form = ("ms per call", "{:.3g}") if page.emulated else (f"speedup over {page.baseline}", "{:.3g}×")
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
