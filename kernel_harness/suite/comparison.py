"""Compares two suites, A and B: figures over the problems that both have, and verdicts on candidates that both have."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kernel_harness.core.errors import UserError
from kernel_harness.results import cells
from kernel_harness.results.comparison import Change, is_regression
from kernel_harness.suite import figures
from kernel_harness.suite.figures import Figure
from kernel_harness.suite.store import Entry, Facts, SuiteStore
from kernel_harness.timing import intervals
from kernel_harness.timing.intervals import Interval

# KernelBench's names of candidates. Those of two suites are different samples, and not versions of one kernel.
_SAMPLE = re.compile(r"sample_\d+")
_MOST_ROWS = 40


@dataclass(frozen=True)
class StoredSuite:
    """The stored verdicts of one suite."""

    label: str
    facts: Facts
    entries: Mapping[tuple[str, str], Entry]


@dataclass(frozen=True)
class FigureChange:
    """A figure in suite A and in suite B, each over those of the common problems that have a value there."""

    a: Figure
    b: Figure

    @cached_property
    def difference(self) -> Figure:
        """The mean of (value in B - value in A) over the problems that have both; for a geometric mean, of B / A."""
        values = {name: self.b.values[name] - value for name, value in self.a.values.items() if name in self.b.values}
        return Figure(self.a.name, values, len(values), "", self.a.geometric)

    @property
    def worse(self) -> bool:
        """Whether the figure is certainly lower in B: its whole interval is below 0, or below 1 if it is geometric."""
        high = self.difference.high
        return high is not None and high < (1 if self.a.geometric else 0)


@dataclass(frozen=True)
class CandidateChange:
    """A candidate that both suites have, and how its result in B differs from that in A.

    `ratio` is its speedup in B divided by its speedup in A. It is None if the candidate failed or has no speedup in one
    of the suites, or if the two speedups are relative to different baselines; `note` then says why.
    """

    problem: str
    candidate: str
    change: Change
    ratio: Interval | None
    note: str = ""


@dataclass(frozen=True)
class SuiteOutcome:
    """The comparison of suite `a` with suite `b`."""

    a: StoredSuite
    b: StoredSuite
    figures: tuple[FigureChange, ...]
    candidates: tuple[CandidateChange, ...]

    def regressions(self, percent: float) -> list[str]:
        """Returns the names of the figures that are certainly lower in B, and `problem/name` of each worse candidate.

        A candidate is worse if it passed in A and fails in B. It is also worse if the whole interval of its ratio says
        that it is slower in B, and the estimate says that it is slower by more than `percent`.
        """
        worse = [c for c in self.candidates if is_regression(c.change, c.ratio, percent)]
        return [*(f.a.name for f in self.figures if f.worse), *(f"{c.problem}/{c.candidate}" for c in worse)]


def suite_named(word: str, results: Path) -> StoredSuite | None:
    """Returns the suite that `word` names: the path of its folder, or its name in the folder `suites` of `results`.

    Returns None if there is no such suite. Raises UserError if its suite.json is damaged.
    """
    for folder in (Path(word), results / "suites" / word):
        store = SuiteStore(folder)
        if folder.is_dir() and (facts := store.facts()) is not None:
            return StoredSuite(word, facts, {one.id: one for one in store.read()})
    return None


def compare(a: StoredSuite, b: StoredSuite, *, force: bool = False) -> SuiteOutcome:
    """Compares two suites. Candidates are matched by problem and name.

    KernelBench's names `sample_0`, ... are matched only if the sources are equal. Raises UserError if no problem is
    in both suites, and without `force` if their devices or settings differ.
    """
    if not force:
        _check_alike(a, b)
    problems = {name for name, _ in a.entries} & {name for name, _ in b.entries}
    if not problems:
        raise UserError(f"{a.label} and {b.label} have no problem in common")
    of_a, of_b = (
        {each.name: each for each in figures.figures([e for e in side.entries.values() if e.problem in problems])}
        for side in (a, b)
    )
    pairs = [(a.entries[id], b.entries[id]) for id in sorted(a.entries.keys() & b.entries.keys())]
    return SuiteOutcome(
        a, b, tuple(FigureChange(of_a[name], of_b[name]) for name in of_a if name in of_b),
        tuple(_candidate_change(one, other) for one, other in pairs
              if one.source_sha256 == other.source_sha256 or not _SAMPLE.fullmatch(one.candidate)),
    )  # fmt: skip


def render(outcome: SuiteOutcome) -> str:
    """Returns the comparison as text: the figures, how many candidates changed in which way, and a table of candidates.

    The table has the candidates that are broken, slower, fixed or faster in B, at most _MOST_ROWS of them.
    """
    a, b = outcome.a, outcome.b
    rows = [_figure_row(change) for change in outcome.figures]
    count = len({name for name, _ in a.entries} & {name for name, _ in b.entries})
    lines = [
        f"A: {a.label}, {len(a.entries)} candidates on {a.facts.device}",
        f"B: {b.label}, {len(b.entries)} candidates on {b.facts.device}",
        f"{count} problems are in both; the figures are over these.",
        "",
        cells.table(["figure", "A", "B", "B - A", "95% interval"], rows),
    ]
    return "\n".join([*lines, *_candidate_lines(outcome)])


def _figure_row(change: FigureChange) -> tuple[str, ...]:
    difference, bounds = change.difference, change.difference.bounds
    if change.a.geometric:
        told = f"{difference.value:.3g}x", f"{bounds[0]:.3g} - {bounds[1]:.3g}" if bounds else ""
    else:
        told = f"{difference.value:+.3g}", f"{bounds[0]:+.3g} to {bounds[1]:+.3g}" if bounds else ""
    return change.a.name, f"{change.a.value:.3g}", f"{change.b.value:.3g}", *told


def _check_alike(a: StoredSuite, b: StoredSuite) -> None:
    if a.facts.label != b.facts.label:
        raise UserError(
            f"different devices: {a.label} ran on {a.facts.device}, {b.label} on {b.facts.device}; "
            "--force compares them"
        )
    names = a.facts.settings.keys() | b.facts.settings.keys()
    differing = sorted(name for name in names if a.facts.settings.get(name) != b.facts.settings.get(name))
    if differing:
        raise UserError(f"different settings: {', '.join(differing)} of {a.label} and {b.label}; --force compares them")


def _candidate_change(a: Entry, b: Entry) -> CandidateChange:
    if (a.passed, b.passed) != (True, True):
        change = {(True, False): Change.BROKEN, (False, True): Change.FIXED}.get((a.passed, b.passed), Change.FAILED)
        note = str(b.status) if a.status is b.status else f"{a.status} -> {b.status}"
        return CandidateChange(*a.id, change, None, note)
    if a.speedup is None or b.speedup is None:
        return CandidateChange(*a.id, Change.UNDECIDED, None, "no speedups")
    if a.baseline != b.baseline:
        return CandidateChange(*a.id, Change.UNDECIDED, None, f"timed against {a.baseline} in A and {b.baseline} in B")
    ratio = intervals.through_baseline(b.speedup, a.speedup)
    return CandidateChange(*a.id, Change(intervals.compare(ratio).value), ratio)


def _candidate_lines(outcome: SuiteOutcome) -> Sequence[str]:
    if not outcome.candidates:
        return ["", "No candidate is in both suites."]
    counts = Counter(c.change for c in outcome.candidates)
    told = ", ".join(f"{change.value} {counts[change]}" for change in Change if counts[change])
    order = (Change.BROKEN, Change.SLOWER, Change.FIXED, Change.FASTER)
    changed = [c for change in order for c in outcome.candidates if c.change is change]
    shown = [(c, "" if c.ratio is None else f"{cells.ratio(c.ratio.estimate)}x") for c in changed[:_MOST_ROWS]]
    rows = [(f"{c.problem}/{c.candidate}", c.change.value, ratio, c.note) for c, ratio in shown]
    lines = ["", f"{len(outcome.candidates)} candidates are in both: {told}."]
    if rows:
        lines += ["", cells.table(["candidate", "B is", "speedup B / A", ""], rows)]
    return [*lines, f"... and {len(changed) - len(rows)} more"] if len(changed) > len(rows) else lines


def both_suites(a: str, b: str | None, results: Path) -> tuple[StoredSuite, StoredSuite] | None:
    """Returns the two suites that the words `a` and `b` name; None if neither names a suite.

    Raises UserError if only one of them names a suite, or if `a` does and `b` is None.
    """
    of_a, of_b = suite_named(a, results), suite_named(b, results) if b else None
    if of_a and of_b:
        return of_a, of_b
    if not of_a and not of_b:
        return None
    if b is None:
        raise UserError(f"{a!r} names a suite; name a second suite to compare it with")
    raise UserError(f"{(a if of_a else b)!r} names a suite and {(b if of_a else a)!r} does not; name two suites")
