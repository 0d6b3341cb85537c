"""Records of one problem, device and shape -> the page's parts, as values. Charts are in pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd

from kernel_harness import leaderboard, timing
from kernel_harness.status import Status
from kernel_harness.timing import Comparison, Interval

Record = Mapping[str, Any]

# (key, title, kind, form)
_COLUMNS = (
    ("rank", "#", "number", "{}"), ("kernel", "kernel", "name", ""), ("status", "status", "text", ""),
    ("time_ms", "time (ms)", "number", ""), ("speedup", "speedup", "number", ""),
    ("versus", "vs {baseline}", "text", ""),
    ("tflops", "TFLOPS", "number", ""), ("percent_of_peak", "% of peak", "number", ""),
    ("max_abs_error", "max error", "number", ""),
    ("shapes", "shapes", "text", ""), ("build_s", "build (s)", "number", "{:.1f}"),
)  # fmt: skip

# Facts that change from run to run and say nothing about what was measured.
_PASSING = ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "throttle_reasons")
_UNITS = {"memory_bytes": (2**30, "GiB"), "l2_bytes": (2**20, "MiB")}


@dataclass(frozen=True)
class Page:
    """What is known about the kernels at one shape on one device. `latest` is each kernel's record that counts."""

    records: Sequence[Record]
    shape: Mapping[str, int]

    def __post_init__(self) -> None:
        at_shape = [r for r in self.records if r["shape"] == dict(self.shape)]
        object.__setattr__(self, "records", at_shape)

    @cached_property
    def latest(self) -> dict[str, Record]:
        """By kernel, in the leaderboard's order."""
        found = leaderboard.latest(self.records, self.shape)
        return {name: found[name] for name in map(str, self.table["kernel"])}

    @cached_property
    def table(self) -> pd.DataFrame:
        """The leaderboard."""
        return leaderboard.rank(self.records, self.shape)

    @property
    def emulated(self) -> bool:
        """Whether times are an emulation's."""
        return bool((self.table["device"] == leaderboard.EMULATED).any())

    @property
    def baseline(self) -> str:
        """What speedups are over."""
        names = {r["settings"]["baseline"] for r in self.latest.values() if r["timing"]}
        return str(names.pop()) if len(names) == 1 else "its baseline"


def rows(page: Page) -> list[dict[str, Any]]:
    """The leaderboard's rows with what the page says beside them; absent values are None."""
    latest = page.latest
    found = []
    for row in page.table.to_dict("records"):
        clean: dict[str, Any] = {str(k): None if _missing(v) else v for k, v in row.items()}
        record = latest[clean["kernel"]]
        clean["title"] = record["title"]
        clean["is_baseline"] = record["kind"] == "baseline"
        clean["versus"] = None if page.emulated or clean["kernel"] == clean["baseline"] else _versus(record)
        found.append(clean)
    return found


def _missing(value: Any) -> bool:
    return value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value))


def _versus(record: Record) -> Comparison | None:
    speedup = (record["timing"] or {}).get("speedup")
    return timing.compare(Interval(**speedup)) if speedup else None


def runs(page: Page) -> list[dict[str, Any]]:
    """Every run, latest first: its name, when, the commit, and what became of each kernel."""
    found: dict[str, dict[str, Any]] = {}
    for record in page.records:
        one = found.setdefault(record["run"], {"kernels": {}, "baseline_ms": None})
        environment = record["environment"]
        one.update(measured_at=record["measured_at"], commit=environment.get("commit"), dirty=environment.get("dirty"))
        if record["kind"] == "candidate":
            one["kernels"][record["kernel"]] = record["status"]
        elif record["timing"] and record["kernel"] == "torch":
            one["baseline_ms"] = record["timing"]["time_ms"]
    counted = [
        {"run": name, **one, "failed": [k for k, status in one["kernels"].items() if status != Status.PASSED]}
        for name, one in found.items()
    ]
    return counted[::-1]


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


def facts(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Figures of a kernel that no rank rests on: (what, value with its unit)."""
    named = (
        ("bound by", "bound", "{}"), ("of the measured ceiling", "percent_of_ceiling", "{:.3g}%"),
        ("bandwidth", "gbytes_per_s", "{:.3g} GB/s"), ("with a warm cache", "warm_ms", "{:.4g} ms"),
        ("in a graph", "graph_ms", "{:.4g} ms"), ("first call", "first_call_ms", "{:.4g} ms"),
        ("peak memory", "peak_mib", "{:.4g} MiB"), ("relative error", "relative_error", "{:.2g}"),
    )  # fmt: skip
    return [
        (what, row[key] if isinstance(row[key], str) else form.format(row[key]))
        for what, key, form in named
        if row[key] is not None
    ]


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


def columns(rows: Sequence[Mapping[str, Any]], baseline: str) -> list[dict[str, str]]:
    """The table's columns, without those that are empty throughout."""
    return [
        {"key": key, "title": title.format(baseline=baseline), "kind": kind, "form": form}
        for key, title, kind, form in _COLUMNS
        if key in ("rank", "kernel", "status") or any(row[key] is not None for row in rows)
    ]


def tiles(rows: Sequence[Mapping[str, Any]], page: Page) -> list[dict[str, str]]:
    """The page in four figures."""
    kernels = [row for row in rows if not row["is_baseline"]]
    passed = [row for row in kernels if row["status"] == "PASSED"]
    failed = len(kernels) - len(passed)
    tiles = [{
        "name": "Correct", "value": f"{len(passed)} of {len(kernels)}", "mood": "bad" if failed else "good",
        "detail": f"{failed} failed" if failed else "every check passed",
    }]  # fmt: skip
    best = next((row for row in rows if row["rank"] == 1), None)
    if best is None:
        return tiles
    tiles.append({"name": "Fastest", "value": best["kernel"], "mood": "", "detail": f"{best['time_ms']:.4g} ms"})
    if page.emulated or best["speedup"] is None:
        return tiles
    bounds = f"95%: {best['speedup_low']:.3g} – {best['speedup_high']:.3g}" if best["speedup_low"] else "too few rounds"
    tiles.append(
        {
            "name": f"Against {page.baseline}: {best['versus']}",
            "value": f"{best['speedup']:.3g}×",
            "mood": "",
            "detail": bounds,
        }
    )
    if best["percent_of_peak"] is not None:
        detail = f"{best['tflops']:.3g} TFLOPS" if best["tflops"] else ""
        tiles.append({"name": "Of the peak", "value": f"{best['percent_of_peak']:.3g}%", "mood": "", "detail": detail})
    return tiles
