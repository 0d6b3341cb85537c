"""Compares two sets of results, side A and side B.

Each kernel with results on both sides gets a verdict on side B: `faster` means that it is faster there than on side A.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from kernel_harness.core.errors import UserError
from kernel_harness.problem.problem import shape_text
from kernel_harness.results.cells import bounds, number, table
from kernel_harness.results.leaderboard import EMULATED_NOTE, document
from kernel_harness.results.ranking import latest
from kernel_harness.results.record import Result, at_each_shape
from kernel_harness.timing import intervals
from kernel_harness.timing.intervals import Interval

Shape = tuple[tuple[str, int], ...]
# Facts about a side's environment. If one differs between side A and side B, the rendered comparison says so.
_FACTS = ("torch", "driver", "cuda", "compiler")


class Change(StrEnum):
    """How a kernel's result on side B differs from its result on side A.

    BROKEN: the kernel passed on side A and failed on side B. FIXED: it failed on side A and passed on side B. FAILED:
    it failed on both sides. FASTER, SLOWER and SAME: it passed on both sides, and this is its time on side B compared
    with side A. UNDECIDED: it passed on both sides, but there are no times that show which of these three is true.
    """

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNDECIDED = "undecided"
    BROKEN = "broken"
    FIXED = "fixed"
    FAILED = "fails in both"


@dataclass(frozen=True)
class Side:
    """One side of a comparison, A or B.

    `label` names the side in messages, such as `run 20261120-115954-1f2e`. `problem` is the name of the problem, or
    None if it is unknown. `results` has one result for each pair of a name, of a kernel or baseline, and the size
    constants (`M`, `N`, ...) that it ran with.
    """

    label: str
    problem: str | None
    results: Mapping[tuple[str, Shape], Result]

    def values(self, fact: str) -> set[str]:
        """Returns the different values, as text, of one fact of the environment (such as "driver") on this side."""
        return {str(r.environment[fact]) for r in self.results.values() if fact in r.environment}

    @property
    def devices(self) -> set[str]:
        """The names of the devices that this side's results were measured on."""
        return {device_of(result) for result in self.results.values()}

    @property
    def emulated(self) -> bool:
        """Whether any result of this side was measured on the emulated device."""
        return any(result.emulated for result in self.results.values())


@dataclass(frozen=True)
class Row:
    """The comparison of one kernel at one shape.

    `before_ms` is the time of a call on side A and `after_ms` that on side B; None if the kernel was not timed there.
    `ratio` is the time on side A divided by the time on side B, so side B is faster if `ratio` is above 1. `ratio` is
    None if there are no two times that can be compared; `note` then says why, or has the statuses of a kernel that
    failed. `shape` is empty if the kernel ran at different shapes.
    """

    kernel: str
    shape: Shape
    change: Change
    before_ms: float | None
    after_ms: float | None
    ratio: Interval | None
    note: str = ""


@dataclass(frozen=True)
class Outcome:
    """The outcome of comparing side `a` with side `b`.

    `rows` has a row for each kernel and shape of which both sides have a result. `only_a` has the names of the other
    kernels and baselines of side A, which have no shape in common with side B, and `only_b` those of side B. A name
    that the other side has at other shapes is followed by the shape, such as `tiled at M=4`.
    """

    a: Side
    b: Side
    rows: tuple[Row, ...]
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()

    def after(self, row: Row) -> Result | None:
        """Returns the result on side B of a row; None if the sides have the same source and nothing was measured."""
        return self.b.results.get((row.kernel, row.shape))

    def regressions(self, percent: float) -> list[Row]:
        """Returns the rows of kernels that broke, and of kernels that are slower on side B by more than `percent`.

        A kernel is slower only if the whole confidence interval of its time ratio says so. `percent` is compared with
        the estimate of the ratio, not with a bound of the interval.
        """
        return [r for r in self.rows if is_regression(r.change, r.ratio, percent)]


def is_regression(change: Change, ratio: Interval | None, percent: float) -> bool:
    """Returns whether a kernel broke, or is slower on side B by more than `percent`.

    `ratio` is the time on side A divided by the time on side B; None if it is not known.
    """
    slower_percent = 100 * (1 / ratio.estimate - 1) if change is Change.SLOWER and ratio else 0.0
    return change is Change.BROKEN or slower_percent > percent


def device_of(result: Result) -> str:
    """Returns the name of the device that a result was measured on.

    The name of an emulated device includes the processor, because emulated times on two processors are not comparable.
    """
    processor = result.environment.get("processor")
    return f"{result.device} ({processor})" if result.emulated and processor else result.device


def side(label: str, results: Sequence[Result], problem: str | None = None) -> Side:
    """Builds a side of a comparison from results that are ordered from old to new.

    If a kernel has several results at one shape, the side has only the one that `ranking.latest` chooses. A result at
    several shapes counts as one at each. `label` names the side in messages.
    """
    results = [each for result in results for each in at_each_shape(result)]
    shapes = {tuple(r.shape.items()): r.shape for r in results}
    found = {
        (kernel, key): result for key, shape in shapes.items() for kernel, result in latest(results, shape).items()
    }
    return Side(label, problem, found)


def compare(a: Side, b: Side, *, force: bool = False, interleaved: bool = False) -> Outcome:
    """Compares each kernel of side `a` with the kernel of side `b` of the same name and shape. Returns the outcome.

    `interleaved` says that both sides were timed in the same rounds, with side A as the baseline. Raises UserError
    if the sides are known to be of different problems, hold the same measurements or have no kernel in common. Without
    `force`, it also raises UserError if no kernel or baseline has results at the same shape on both sides, or if one
    ran on different devices. With `force`, kernels are compared by name alone if none has results at the same shape.
    """
    _check_alike(a, b)
    if not a.results.keys() & b.results.keys():
        if not force:
            one, other = (" and ".join(sorted({shape_text(dict(shape)) for _, shape in s.results})) for s in (a, b))
            raise UserError(f"different shapes: {a.label} has {one}, {b.label} has {other}; --force compares them")
        a, b = _by_kernel_alone(a), _by_kernel_alone(b)
    both = [key for key in a.results if key in b.results]
    if not force:
        _check_devices(a, b, both)
    rows = (_row(key, a.results[key], b.results[key], interleaved) for key in both if not a.results[key].is_baseline)
    in_order = tuple(sorted(rows, key=lambda row: (row.shape, row.kernel)))
    return Outcome(a, b, in_order, _names(a, b, both), _names(b, a, both))


def _check_alike(a: Side, b: Side) -> None:
    if a.problem and b.problem and a.problem != b.problem:
        raise UserError(f"{a.label} and {b.label} are of different problems, {a.problem} and {b.problem}")
    if {_identity(r) for r in a.results.values()} == {_identity(r) for r in b.results.values()}:
        raise UserError(f"{a.label} and {b.label} are the same measurements")
    if not _kernels(a) & _kernels(b):
        raise UserError(f"{a.label} and {b.label} have no kernel in common")


def _check_devices(a: Side, b: Side, both: Iterable[tuple[str, Shape]]) -> None:
    for key in both:
        one, other = device_of(a.results[key]), device_of(b.results[key])
        if one != other:
            raise UserError(
                f"different devices: kernel {key[0]} ran on {one} in {a.label} and on {other} in {b.label}; "
                "--force compares them"
            )


def _identity(result: Result) -> tuple[str, ...]:
    return result.run, result.kernel, result.measured_at, result.source_sha256


def _kernels(side: Side) -> set[str]:
    return {kernel for (kernel, _), result in side.results.items() if not result.is_baseline}


def _by_kernel_alone(side: Side) -> Side:
    """Returns a copy of the side that has one result per kernel: the last one in `side.results`, whatever its shape."""
    return replace(side, results={(kernel, ()): result for (kernel, _), result in side.results.items()})


def _names(side: Side, other: Side, both: Iterable[tuple[str, Shape]]) -> tuple[str, ...]:
    """Returns the names of the side's kernels that do not occur in `both`, the (kernel, shape) pairs on both sides.

    A kernel that the other side has, at other shapes, is named with each of its shapes, such as `tiled at M=4`.
    """
    shared, theirs = ({kernel for kernel, _ in pairs} for pairs in (both, other.results))
    apart = [pair for pair in side.results if pair[0] not in shared]
    return tuple(sorted({_named(kernel, shape if kernel in theirs else ()) for kernel, shape in apart}))


def _row(key: tuple[str, Shape], a: Result, b: Result, interleaved: bool) -> Row:
    before, after = _ms(a), _ms(b)
    passed = (a.passed, b.passed)
    if passed != (True, True):
        change = {(True, False): Change.BROKEN, (False, True): Change.FIXED}.get(passed, Change.FAILED)
        note = str(b.status) if a.status is b.status else f"{a.status} -> {b.status}"
        return Row(*key, change, before, after, None, note)
    if before is None or after is None:
        return Row(*key, Change.UNDECIDED, before, after, None, "not timed")
    ratio = _ratio_in_rounds(b) if interleaved else _ratio_of_runs(key[0], a, b)
    if isinstance(ratio, str):
        return Row(*key, Change.UNDECIDED, before, after, None, ratio)
    note = "" if ratio.low is not None else "too few rounds for an interval"
    return Row(*key, Change(intervals.compare(ratio).value), before, after, ratio, note)


def _ratio_in_rounds(b: Result) -> Interval | str:
    """Returns the speedup in `b` over side A, the baseline of the rounds; a text that says so if no round has both."""
    return (b.timing.speedup if b.timing else None) or "no round holds both"


def _ratio_of_runs(kernel: str, a: Result, b: Result) -> Interval | str:
    """Returns a kernel's time in run `a` divided by its time in run `b`, or a text that says why there is no ratio.

    The ratio is computed as the speedup in `b` divided by the speedup in `a`, both over the same baseline.
    """
    assert a.timing and b.timing
    one, other = a.settings.baseline, b.settings.baseline
    if one != other:
        return f"timed against {one} in A and {other} in B"
    if kernel == one:
        return "the baseline itself"
    if a.timing.speedup is None or b.timing.speedup is None:
        return "timed without a baseline"
    return intervals.through_baseline(b.timing.speedup, a.timing.speedup)


def to_json(outcome: Outcome, percent: float) -> str:
    """Returns the comparison as one JSON object: the sides' labels and devices, the rows, and what one side lacks.

    A row has the fields of `Row`, and `regression`: whether the kernel broke, or is slower by more than `percent`.
    """
    worse = outcome.regressions(percent)
    sides = {name: {"label": s.label, "devices": sorted(s.devices)} for name, s in (("a", outcome.a), ("b", outcome.b))}
    rows = [{**asdict(row), "shape": dict(row.shape), "regression": row in worse} for row in outcome.rows]
    return json.dumps({**sides, "rows": rows, "only_a": outcome.only_a, "only_b": outcome.only_b})


def to_markdown(outcome: Outcome) -> str:
    """Returns the comparison as a Markdown document, with the first line of the reason of each failure in B."""
    failed = [(row, r) for row in outcome.rows if (r := outcome.after(row)) and not r.passed]
    reasons = [(_named(row.kernel, row.shape), str(r.status), r.reason.partition("\n")[0]) for row, r in failed]
    texts = [_heading(outcome), _table(outcome, "github"), *_remarks(outcome)]
    title = f"{outcome.b.label} (B) against {outcome.a.label} (A)"
    return document(title, "\n\n".join(filter(None, texts)), reasons)


def render(outcome: Outcome) -> str:
    """Returns the comparison as text: the devices, the labels of the sides, a table of the kernels, and remarks."""
    sides = [f"A: {outcome.a.label}", f"B: {outcome.b.label}"]
    return "\n".join([*filter(None, [_heading(outcome)]), *sides, "", _table(outcome, "simple"), *_remarks(outcome)])


def _heading(outcome: Outcome) -> str:
    shapes = {row.shape for row in outcome.rows}
    devices = sorted(outcome.a.devices | outcome.b.devices)
    return ", ".join([*(shape_text(dict(shape)) for shape in shapes if shape and len(shapes) == 1), *devices])


def _named(kernel: str, shape: Shape) -> str:
    return f"{kernel} at {shape_text(dict(shape))}" if shape else kernel


def _table(outcome: Outcome, style: str) -> str:
    shapes = {row.shape for row in outcome.rows}
    headers = ["kernel", "A (ms)", "B (ms)", "B is", "A / B", "95% interval", ""]
    rows = [
        [
            row.kernel if len(shapes) == 1 else _named(row.kernel, row.shape),
            *(number(ms, "{:.4g}") for ms in (row.before_ms, row.after_ms)),
            row.change.value, *_interval(row.ratio), row.note,
        ]
        for row in outcome.rows
    ]  # fmt: skip
    align = ["left", "right", "right", "left", "right", "left", "left"]
    if not any(row.note for row in outcome.rows):
        headers, align, rows = headers[:-1], align[:-1], [row[:-1] for row in rows]
    return table(headers, rows, style, align)


def _remarks(outcome: Outcome) -> list[str]:
    a, b = outcome.a, outcome.b
    remarks = [
        f"{fact} differs: {' and '.join(sorted(a.values(fact)))} in A, {' and '.join(sorted(b.values(fact)))} in B."
        for fact in _FACTS
        if a.values(fact) != b.values(fact)
    ]
    remarks += [*_means(outcome), *_baselines(outcome)]
    remarks += [
        f"{_named(row.kernel, row.shape)}: {result.verdict.splitlines()[0]}"
        for row in outcome.rows
        if row.change in (Change.BROKEN, Change.FAILED) and (result := outcome.after(row)) and result.verdict
    ]
    remarks += [
        f"Only in {name}: {', '.join(names)}."
        for name, names in (("A", outcome.only_a), ("B", outcome.only_b))
        if names
    ]
    if a.emulated or b.emulated:
        remarks.append(EMULATED_NOTE)
    return ["", *remarks] if remarks else []


def _means(outcome: Outcome) -> list[str]:
    """Returns a remark for each kernel that was timed at several shapes on both sides: the mean of the ratios."""
    ratios: dict[str, list[Interval]] = {}
    for row in outcome.rows:
        if row.ratio is not None:
            ratios.setdefault(row.kernel, []).append(row.ratio)
    texts = []
    for kernel, found in ratios.items():
        if len(found) > 1:
            mean, within = _interval(intervals.geometric_mean(found))
            how_sure = f" (95% interval {within})" if within else ""
            texts.append(f"{kernel}: the geometric mean of A / B over {len(found)} shapes is {mean}{how_sure}.")
    return texts


def _baselines(outcome: Outcome) -> list[str]:
    """Returns a remark for each baseline that both sides have, with the baseline's time on each side.

    Ratios between separate runs are computed from speedups over the baseline, so they hide a change of all times alike;
    the baseline's own times show it.
    """
    a, b = outcome.a.results, outcome.b.results
    found = [key for key in a if key in b and a[key].is_baseline]
    several = len({shape for _, shape in found}) > 1
    texts = [
        f"{_named(kernel, shape if several else ())} took {number(_ms(a[kernel, shape]), '{:.4g}')} ms in A and "
        f"{number(_ms(b[kernel, shape]), '{:.4g}')} ms in B."
        for kernel, shape in found
    ]
    cancels = "The column A / B compares speedups over the baseline, so a change that slows all kernels alike cancels."
    return [*texts[:-1], f"{texts[-1]} {cancels}"] if texts else []


def _ms(result: Result) -> float | None:
    return result.timing.time_ms if result.timing else None


def _interval(ratio: Interval | None) -> tuple[str, str]:
    if ratio is None:
        return "", ""
    return f"{ratio.estimate:#.4g}x", bounds(ratio, "{:#.4g}".format)
