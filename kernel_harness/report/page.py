"""Computes the values that an HTML page shows, from the results of one problem on one device at one shape.

The charts of the page are built in the module `pictures`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kernel_harness.core.arms import BASELINE
from kernel_harness.core.precision import Precision
from kernel_harness.core.status import Status
from kernel_harness.problem.problem import shape_text
from kernel_harness.results import cells, leaderboard, ranking, roofline
from kernel_harness.results.line_profile import StoredProfile
from kernel_harness.results.measurement import FurtherShape, Measurement
from kernel_harness.results.record import Result
from kernel_harness.results.rows import Row
from kernel_harness.timing import intervals

# The columns of the page's table: (key, title, kind, format of a number).
_COLUMNS = (
    ("rank", "#", "number", "{}"), ("kernel", "kernel", "name", ""), ("status", "status", "text", ""),
    ("time_ms", leaderboard.TIME, "number", ""), ("speedup", "speedup", "number", ""),
    ("worst", "worst shape", "text", ""), ("versus", "vs {baseline}", "text", ""),
    ("tflops", "TFLOPS", "number", ""), ("percent_of_peak", "% of peak", "number", ""),
    ("own_share", "own kernels", "number", "{:.0%}"), ("max_abs_error", "max error", "number", ""),
    ("shapes", "shapes", "text", ""), ("build_s", "build (s)", "number", "{:.1f}"),
)  # fmt: skip

# Facts about the device that change from run to run. The page leaves them out: they do not say what was measured.
_CHANGING = ("sm_clock_mhz", "memory_clock_mhz", "temperature_c", "throttle_reasons", "computing_processes")
# The name of a fact on the page, and how its value is written. Other facts have their own names.
_FACTS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "capability": ("compute capability", lambda parts: ".".join(map(str, parts))),
    "memory_bytes": ("memory", lambda count: f"{count / 2**30:.4g} GiB"),
    "l2_bytes": ("L2 cache", lambda count: f"{count / 2**20:.4g} MiB"),
    "null_call_ms": ("an empty kernel takes", lambda ms: f"{1e3 * ms:.2g} us"),
    "nvcc": ("nvcc", lambda text: (re.findall(r"V[\d.]+", text) or [text])[0]),
    "processor": ("processor", lambda text: re.sub(r" [0-9a-f]{8}$", "", text)),  # of its instruction set extensions
    "commit": ("commit", lambda text: text[:10]),
    "dirty": ("uncommitted changes", lambda value: "yes" if value else "no"),
    "slowed": ("slowed down by", str),
    "shares": ("inputs are in", str),
    "cuda": ("CUDA", str),
    "python": ("Python", str),
}


@dataclass(frozen=True)
class Page:
    """The results that an HTML page shows. The constructor keeps those that are at `shape` and at the `further` ones.

    All results must be of one problem on one device.
    """

    results: Sequence[Result]
    shape: Mapping[str, int]
    further: Sequence[Mapping[str, int]] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "results", ranking.of_shapes(self.results, self.shape, self.further))

    @cached_property
    def latest(self) -> dict[str, Result]:
        """The one result of each kernel that the leaderboard shows, by kernel name and in the order of its rows."""
        found = ranking.latest(self.results, self.shape, self.further)
        return {row["kernel"]: found[row["kernel"]] for row in self.table}

    @cached_property
    def table(self) -> Sequence[Row]:
        """The leaderboard at the shape of the page."""
        return leaderboard.rank(self.results, self.shape, self.further)

    @property
    def emulated(self) -> bool:
        """Whether any result on the page is from the emulated device."""
        return any(result.emulated for result in self.latest.values())

    @property
    def baseline(self) -> str:
        """The name of the baseline that the speedups are relative to.

        It is "its baseline" if the kernels have different baselines, or if nothing was timed.
        """
        names = {r.settings.baseline for r in self.latest.values() if r.timing}
        return names.pop() if len(names) == 1 else "its baseline"


def rows(page: Page) -> list[dict[str, Any]]:
    """Returns the rows of the leaderboard as dicts: its columns, and the keys below.

    A column without a value is None. `title` is the author's description of the kernel. `versus` is the `Comparison` of
    the kernel with its baseline: None for the baseline itself, without a speedup, and on an emulated device. `earlier`
    says when the row was measured; it is an empty text for a row of the latest run. `peaks` has the
    peak of the column `percent_of_peak`, and for a kernel above it also the device's fastest, as (percentage that is
    reached, name, speed as text). `first_line` is the first line of the reason, which is a sentence: the others may be
    code; for a kernel that passed, it is what the sanitizer has found. `is_baseline` is a bool.
    """
    found = []
    for row, earlier in zip(page.table, leaderboard.earlier(page.table), strict=True):
        clean = dict(row)
        result = page.latest[clean["kernel"]]
        clean["title"], clean["peaks"] = result.title, _peaks(result)
        clean["first_line"] = row["flaw"] or result.reason.strip().partition("\n")[0]
        clean["is_baseline"], clean["earlier"] = result.is_baseline, earlier
        itself = result.kernel == result.settings.baseline
        speedup = None if page.emulated or itself else result.speedup
        clean["versus"] = intervals.compare(speedup) if speedup else None
        found.append(clean)
    return found


def _peaks(result: Result) -> list[tuple[float, str, str]]:
    bound, percent = roofline.nearest_roof(result, "peak")
    if bound is None or percent is None:
        return []
    if bound == "memory":
        return [(percent, "memory", f"{result.numbers['peak_bytes_per_s'] / 1e12:.3g} TB/s")]
    own = str(result.precision or Precision.FLOAT32)
    found = [(percent, own, result.numbers[f"peak_{own}_flops_per_s"])]
    if fastest := roofline.fastest_peak(result):
        found.append(fastest)
    return [(share, number_format, f"{speed / 1e12:.3g} TFLOPS") for share, number_format, speed in found]


def runs(page: Page) -> list[dict[str, Any]]:
    """Returns a dict for every run that has a result on the page, the latest run first.

    Keys: `run` (the run's id), `measured_at`, `commit`, `dirty` (whether the checkout differed from the commit),
    `kernels` (status by kernel name), `failed` (names of failed kernels) and `baseline_ms` (time of the baseline
    `torch`, or None).
    """
    found: dict[str, dict[str, Any]] = {}
    for result in page.results:
        one = found.setdefault(result.run, {"kernels": {}, "baseline_ms": None})
        facts = result.environment
        one.update(measured_at=result.measured_at, commit=facts.get("commit"), dirty=facts.get("dirty"))
        if not result.is_baseline:
            one["kernels"][result.kernel] = result.status
        elif result.timing and result.kernel == BASELINE:
            one["baseline_ms"] = result.timing.time_ms
    counted = [
        {"run": name, **one, "failed": [k for k, status in one["kernels"].items() if status is not Status.PASSED]}
        for name, one in found.items()
    ]
    return counted[::-1]


def environment(page: Page) -> list[tuple[str, list[tuple[str, str]]]]:
    """Returns facts about device, machine and settings, as (fact, [(value, names of the kernels with this value)]).

    The names are one text with commas between them. This text is empty for a fact with only one value.
    """
    facts: dict[str, dict[str, list[str]]] = {}
    for name, result in page.latest.items():
        for fact, text in facts_of(result).items():
            facts.setdefault(fact, {}).setdefault(text, []).append(name)
    return [
        (fact, [(value, "" if len(values) == 1 else ", ".join(names)) for value, names in values.items()])
        for fact, values in facts.items()
    ]


def facts_of(result: Result) -> dict[str, str]:
    """Returns facts about device, machine and settings of a result, as text for readers, by the facts' names."""
    tolerance = result.settings.tolerance
    conditions = {
        "isolation": result.isolation, "tolerance": tolerance and f"rtol {tolerance.rtol:g}, atol {tolerance.atol:g}",
        "allowed_precision": result.settings.allowed_precision, "run": result.run,
    }  # fmt: skip
    found = {}
    for fact, value in {**result.environment, **conditions}.items():
        name, text = _FACTS.get(fact, (fact.replace("_", " "), str))
        if fact not in _CHANGING and value not in (None, ""):
            found[name] = " ".join(text(value).split())
    return found


def facts(result: Result) -> list[tuple[str, str]]:
    """Returns figures of a kernel's result that do not affect its rank, as (name of the figure, value with unit)."""
    bound, _ = roofline.nearest_roof(result, "peak")
    measured = result.measurement or Measurement()
    memory = None if measured.peak_bytes is None else cells.memory_text(measured.peak_bytes)
    figures = (
        ("bound by", bound, "{}"),
        ("of the measured ceiling", roofline.nearest_roof(result, "ceiling")[1], "{:.3g}%"),
        ("bandwidth", roofline.gbytes_per_s(result), "{:.3g} GB/s"),
        ("of the bound", roofline.share_of_bound(result), "{:.1%}"),
        ("with a warm cache", measured.warm_ms, "{:.4g} ms"),
        ("as called from Python", result.as_called and result.as_called.time_ms, "{:.4g} ms"),
        ("in a graph", measured.graph_interval_ms, "{:.4g} ms"),
        ("first call", result.first_call_ms, "{:.4g} ms"),
        ("peak memory", memory, "{}"),
        ("energy of a call, about", measured.energy_j, "{:.3g} J"),
        ("relative error", result.relative_error, "{:.2g}"),
    )
    at_each = [(f"at {shape_text(each.shape)}", _at_shape(each, result.emulated)) for each in result.further]
    return [*((name, form.format(value)) for name, value, form in figures if value is not None), *at_each]


def _at_shape(each: FurtherShape, emulated: bool) -> str:
    if each.timing is None:
        return each.untimed or "not timed"
    speedup = "" if emulated or each.speedup is None else f", {cells.ratio(each.speedup.estimate)}×"
    return f"{each.timing.time_ms:.4g} ms{speedup}"


def profile_of(result: Result, profiles: Mapping[str, StoredProfile]) -> StoredProfile | None:
    """Returns the stored profile of a kernel, or None if there is none or if it is of another source."""
    found = profiles.get(result.kernel)
    return found if found and found.source_sha256 == result.source_sha256 else None


def map_spans(cells: Sequence[Sequence[float]]) -> list[tuple[int, int, int, float]]:
    """Returns the cells with wrong elements, as spans (row, first column, number of columns, share of wrong elements).

    `cells` is a grid in which each value is the share of wrong elements in a part of the output. A span joins
    neighbours in a row that have the same share.
    """
    spans: list[tuple[int, int, int, float]] = []
    for row, shares in enumerate(cells):
        for column, share in enumerate(shares):
            last = spans[-1] if spans else None
            if share and last and last[0] == row and last[1] + last[2] == column and last[3] == share:
                spans[-1] = (row, last[1], last[2] + 1, share)
            elif share:
                spans.append((row, column, 1, share))
    return spans


def columns(rows: Sequence[Mapping[str, Any]], page: Page) -> list[dict[str, str]]:
    """Returns the columns of the page's leaderboard, as dicts with the keys `key`, `title`, `kind` and `form`.

    `form` is the format string of a number. Columns that are empty in every row are left out, except for kernel and
    status.
    """
    own = {leaderboard.TIME: leaderboard.EMULATED_TIME} if page.emulated else {}
    own |= {"speedup": leaderboard.GEOMETRIC_MEAN} if page.further else {}
    return [
        {"key": key, "title": own.get(title, title.format(baseline=page.baseline)), "kind": kind, "form": form}
        for key, title, kind, form in _COLUMNS
        if key in ("kernel", "status") or any(row[key] is not None for row in rows)
    ]


def tiles(rows: Sequence[Mapping[str, Any]], page: Page) -> list[dict[str, str]]:
    """Returns the tiles at the top of the page: the number of correct kernels and, if known, figures of the fastest.

    There are at most four. Each is a dict with the keys `name`, `value`, `mood` (its colour) and `detail`.
    """
    kernels = [row for row in rows if not row["is_baseline"]]
    passed = [row for row in kernels if row["status"] == Status.PASSED]
    failed = len(kernels) - len(passed)
    mood, detail = ("bad", f"{failed} failed") if failed else ("good", "every check passed")
    found = [_tile("Correct", f"{len(passed)} of {len(kernels)}", detail, mood)]
    first = [row for row in rows if row["rank"] == 1]
    if not first:
        return found
    best, others = first[0], len(first) - 1
    shared = f", rank shared with {others} other{'s' if others > 1 else ''}" if others else ""
    found.append(_tile("Fastest", best["kernel"], f"{best['time_ms']:.4g} ms{shared}"))
    if best["speedup"] is None:
        return found
    value, *ends = (best[key] and cells.ratio(best[key]) for key in ("speedup", "speedup_low", "speedup_high"))
    bounds = f"95%: {' – '.join(ends)}" if all(ends) else "too few rounds"
    found.append(_tile(f"Against {page.baseline}: {best['versus']}", f"{value}×", bounds))
    if best["percent_of_peak"] is not None:
        (percent, name, speed), *others = best["peaks"]
        detail = "".join(f", {percent:.3g}% of {speed} {name}" for percent, name, speed in others)
        found.append(_tile("Of the peak", f"{percent:.3g}%", f"of {speed} {name}{detail}"))
    return found


def _tile(name: str, value: str, detail: str, mood: str = "") -> dict[str, str]:
    return {"name": name, "value": value, "mood": mood, "detail": detail}
