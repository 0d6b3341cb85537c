"""Two sides -> per kernel faster, slower, the same or undecided. Statistics are timing's, measuring the judge's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from tabulate import tabulate

from kernel_harness import timing
from kernel_harness.errors import UserError
from kernel_harness.leaderboard import EMULATED_NOTE, latest
from kernel_harness.timing import Interval

Record = Mapping[str, Any]
Shape = tuple[tuple[str, int], ...]
# What may differ without making times incomparable, but should be known.
_FACTS = ("torch", "driver", "cuda", "compiler")


class Incomparable(UserError):
    """The two sides have nothing that can be compared; the message says what differs."""


class Change(StrEnum):
    """What became of a kernel between A and B."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    UNDECIDED = "undecided"
    BROKEN = "broken"
    FIXED = "fixed"
    FAILED = "fails in both"


@dataclass(frozen=True)
class Side:
    """One of the two: what it is called, of which problem (where known), and each kernel's record at each shape."""

    label: str
    problem: str | None
    records: Mapping[tuple[str, Shape], Record]

    def values(self, key: str) -> set[str]:
        """What its records say about a fact of their environment."""
        return {str(r["environment"][key]) for r in self.records.values() if key in r["environment"]}

    @property
    def devices(self) -> set[str]:
        """The devices it was measured on."""
        return {device_of(record) for record in self.records.values()}


@dataclass(frozen=True)
class Row:
    """One kernel at one shape. `ratio` is A's time over B's: above 1, B is faster. None where there is none."""

    kernel: str
    shape: Shape
    change: Change
    before_ms: float | None
    after_ms: float | None
    ratio: Interval | None
    note: str = ""

    @property
    def slower_percent(self) -> float:
        """How much longer B takes; 0 where it takes no longer for certain."""
        return 100 * (1 / self.ratio.estimate - 1) if self.change is Change.SLOWER and self.ratio else 0.0


@dataclass(frozen=True)
class Outcome:
    """What both sides have, compared; and what only one of them has."""

    a: Side
    b: Side
    rows: tuple[Row, ...]
    only_a: tuple[str, ...] = ()
    only_b: tuple[str, ...] = ()

    def regressions(self, percent: float) -> list[Row]:
        """Kernels that broke, and those that are certainly slower and by more than `percent` by the estimate."""
        return [r for r in self.rows if r.change is Change.BROKEN or r.slower_percent > percent]


def device_of(record: Record) -> str:
    """The device by name, an emulated one with its processor."""
    environment = record["environment"]
    name = str(environment.get("device", "unknown"))
    return f"{name} ({environment['processor']})" if "emulated" in name and "processor" in environment else name


def side(label: str, records: Sequence[Record], problem: str | None = None) -> Side:
    """The last record of each kernel at each shape that counts."""
    shapes = {tuple(r["shape"].items()): r["shape"] for r in records}
    found = {
        (kernel, key): record for key, shape in shapes.items() for kernel, record in latest(records, shape).items()
    }
    return Side(label, problem, found)


def compare(a: Side, b: Side, *, force: bool = False, interleaved: bool = False) -> Outcome:
    """Matches kernels by name and shape. `interleaved` says that both sides ran in the same rounds.

    Raises Incomparable for different devices or shapes unless forced, for different problems always.
    """
    _check_alike(a, b)
    if not a.records.keys() & b.records.keys():
        if not force:
            one, other = (" and ".join(sorted({_text(shape) for _, shape in s.records})) for s in (a, b))
            raise Incomparable(f"different shapes: {a.label} has {one}, {b.label} has {other}; --force compares them")
        a, b = _by_kernel_alone(a), _by_kernel_alone(b)
    both = [key for key in a.records if key in b.records]
    if not force:
        _check_devices(a, b, both)
    rows = (_row(key, a.records[key], b.records[key], interleaved) for key in both if not _is_baseline(a.records[key]))
    in_order = tuple(sorted(rows, key=lambda row: (row.shape, row.kernel)))
    return Outcome(a, b, in_order, _names(a, both), _names(b, both))


def _check_alike(a: Side, b: Side) -> None:
    if a.problem and b.problem and a.problem != b.problem:
        raise Incomparable(f"{a.label} and {b.label} are of different problems, {a.problem} and {b.problem}")
    if {_identity(r) for r in a.records.values()} == {_identity(r) for r in b.records.values()}:
        raise Incomparable(f"{a.label} and {b.label} are the same measurements")
    if not _kernels(a) & _kernels(b):
        raise Incomparable(f"{a.label} and {b.label} have no kernel in common")


def _check_devices(a: Side, b: Side, both: Iterable[tuple[str, Shape]]) -> None:
    for key in both:
        one, other = device_of(a.records[key]), device_of(b.records[key])
        if one != other:
            raise Incomparable(
                f"different devices: {key[0]} ran on {one} in {a.label} and on {other} in {b.label}; "
                "--force compares them"
            )


def _identity(record: Record) -> tuple[str, ...]:
    return record["run"], record["kernel"], record["measured_at"], record["source_sha256"]


def _kernels(side: Side) -> set[str]:
    return {kernel for (kernel, _), record in side.records.items() if not _is_baseline(record)}


def _by_kernel_alone(side: Side) -> Side:
    """The last of each kernel, whatever its shape."""
    return replace(side, records={(kernel, ()): record for (kernel, _), record in side.records.items()})


def _is_baseline(record: Record) -> bool:
    return bool(record["kind"] == "baseline")


def _names(side: Side, both: Iterable[tuple[str, Shape]]) -> tuple[str, ...]:
    shared = {kernel for kernel, _ in both}
    return tuple(sorted({kernel for kernel, _ in side.records} - shared))


def _row(key: tuple[str, Shape], a: Record, b: Record, interleaved: bool) -> Row:
    before, after = _ms(a), _ms(b)
    passed = (a["status"] == "PASSED", b["status"] == "PASSED")
    if passed != (True, True):
        change = {(True, False): Change.BROKEN, (False, True): Change.FIXED}.get(passed, Change.FAILED)
        note = b["status"] if a["status"] == b["status"] else f"{a['status']} -> {b['status']}"
        return Row(*key, change, before, after, None, note)
    if before is None or after is None:
        return Row(*key, Change.UNDECIDED, before, after, None, "not timed")
    obstacle = "" if interleaved else _obstacle(key[0], a, b)
    if obstacle:
        return Row(*key, Change.UNDECIDED, before, after, None, obstacle)
    ratio = _ratio_in_rounds(a, b) if interleaved else _ratio_of_runs(a, b)
    note = "" if ratio.low is not None else "too few rounds for an interval"
    return Row(*key, Change(timing.compare(ratio).value), before, after, ratio, note)


def _ratio_in_rounds(a: Record, b: Record) -> Interval:
    rounds = timing.as_rounds({"A": a["timing"]["samples_ms"], "B": b["timing"]["samples_ms"]})
    return timing.ratio_interval(rounds, arm="B", baseline="A")


def _obstacle(kernel: str, a: Record, b: Record) -> str:
    """Why two runs have no common measure of a kernel; empty where they have."""
    one, other = (r["settings"]["baseline"] for r in (a, b))
    if one != other:
        return f"timed against {one} in A and {other} in B"
    if kernel == one:
        return "the baseline itself"
    return "" if a["timing"]["speedup"] and b["timing"]["speedup"] else "timed without a baseline"


def _ratio_of_runs(a: Record, b: Record) -> Interval:
    old, new = (Interval(**r["timing"]["speedup"]) for r in (a, b))
    return timing.through_baseline(new, old)


def render(outcome: Outcome) -> str:
    """The table, what it stands on, and what only one side has."""
    a, b = outcome.a, outcome.b
    shapes = {row.shape for row in outcome.rows}
    headers = ["kernel", "A (ms)", "B (ms)", "B is", "A / B", "95% interval", ""]
    rows = [
        [
            row.kernel if len(shapes) == 1 else f"{row.kernel} at {_text(row.shape)}",
            _number(row.before_ms), _number(row.after_ms), row.change.value, *_interval(row.ratio), row.note,
        ]
        for row in outcome.rows
    ]  # fmt: skip
    align = ["left", "right", "right", "left", "right", "left", "left"]
    if not any(row.note for row in outcome.rows):
        headers, align, rows = headers[:-1], align[:-1], [row[:-1] for row in rows]
    lines = [
        ", ".join([*(_text(shape) for shape in shapes if shape and len(shapes) == 1), *sorted(a.devices | b.devices)]),
        f"A: {a.label}",
        f"B: {b.label}",
        "",
        tabulate(rows, headers, tablefmt="simple", colalign=align, disable_numparse=True),
    ]
    return "\n".join([*lines, *_remarks(outcome)])


def _remarks(outcome: Outcome) -> list[str]:
    a, b = outcome.a, outcome.b
    remarks = [
        f"{fact} differs: {' and '.join(sorted(a.values(fact)))} in A, {' and '.join(sorted(b.values(fact)))} in B."
        for fact in _FACTS
        if a.values(fact) != b.values(fact)
    ]
    remarks += _baselines(outcome)
    remarks += [
        f"Only in {name}: {', '.join(names)}."
        for name, names in (("A", outcome.only_a), ("B", outcome.only_b))
        if names
    ]
    if any("emulated" in device for device in a.devices | b.devices):
        remarks.append(EMULATED_NOTE)
    return ["", *remarks] if remarks else []


def _baselines(outcome: Outcome) -> list[str]:
    """What the ratios of separate runs pass through; how it moved is what they cancel."""
    a, b = outcome.a.records, outcome.b.records
    return [
        f"{a[key]['kernel']} took {_number(_ms(a[key]))} ms in A and {_number(_ms(b[key]))} ms in B; "
        "A / B is measured against it, so that what slows everything cancels."
        for key in a
        if key in b and _is_baseline(a[key])
    ]


def _ms(record: Record) -> float | None:
    return (record["timing"] or {}).get("time_ms")


def _interval(ratio: Interval | None) -> tuple[str, str]:
    if ratio is None:
        return "", ""
    bounds = f"{ratio.low:.3g} - {ratio.high:.3g}" if ratio.low is not None and ratio.high is not None else ""
    return f"{ratio.estimate:.3g}x", bounds


def _number(ms: float | None) -> str:
    return "" if ms is None else f"{ms:.4g}"


def _text(shape: Shape) -> str:
    return ",".join(f"{name}={value}" for name, value in shape)
