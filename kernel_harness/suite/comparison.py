"""Compares two suites, A and B: figures over the problems that both have, and verdicts on candidates that both have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

from kernel_harness.core.errors import UserError
from kernel_harness.results.comparison import Change, Incomparable, is_regression
from kernel_harness.suite import figures
from kernel_harness.suite.store import Entry, Facts, SuiteStore
from kernel_harness.timing import statistics
from kernel_harness.timing.statistics import Interval

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
    """A figure in suite A and in suite B, over the problems that both suites have.

    `a` is the figure over those of the problems that have a value in A, and `b` over those that have one in B.
    `difference` is the mean of (value in B - value in A) over the problems that have both values; 0 if there are none.
    `low` and `high` are the bounds of its 95% interval; None for fewer than two such problems. If `geometric`, the
    figure is a geometric mean, and `difference` is the geometric mean of the ratios B / A; 1 if there are none.
    """

    name: str
    a: float
    b: float
    difference: float
    low: float | None
    high: float | None
    geometric: bool

    @property
    def worse(self) -> bool:
        """Whether the figure is certainly lower in B: its whole interval is below 0, or below 1 if `geometric`."""
        return self.high is not None and self.high < (1 if self.geometric else 0)


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
        return [*(f.name for f in self.figures if f.worse), *(f"{c.problem}/{c.candidate}" for c in worse)]


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

    KernelBench's names `sample_0`, ... are matched only if the sources are equal. Raises Incomparable if no problem is
    in both suites, and without `force` if their devices or settings differ.
    """
    if not force:
        _check_alike(a, b)
    problems = {name for name, _ in a.entries} & {name for name, _ in b.entries}
    if not problems:
        raise Incomparable(f"{a.label} and {b.label} have no problem in common")
    both = [id for id in a.entries if id in b.entries and _is_one_kernel(a.entries[id], b.entries[id])]
    changes = tuple(_candidate_change(a.entries[id], b.entries[id]) for id in sorted(both))
    return SuiteOutcome(a, b, tuple(_figure_changes(a, b, problems)), changes)


def render(outcome: SuiteOutcome) -> str:
    """Returns the comparison as text: the figures, how many candidates changed in which way, and a table of candidates.

    The table has the candidates that are broken, slower, fixed or faster in B, at most _MOST_ROWS of them.
    """
    a, b = outcome.a, outcome.b
    rows = [
        (f.name, f"{f.a:.3g}", f"{f.b:.3g}", f"{f.difference:.3g}x" if f.geometric else f"{f.difference:+.3g}",
         "" if f.low is None or f.high is None else f"{f.low:.3g} - {f.high:.3g}" if f.geometric
         else f"{f.low:+.3g} to {f.high:+.3g}")
        for f in outcome.figures
    ]  # fmt: skip
    count = len({name for name, _ in a.entries} & {name for name, _ in b.entries})
    lines = [
        f"A: {a.label}, {len(a.entries)} candidates on {a.facts.device}",
        f"B: {b.label}, {len(b.entries)} candidates on {b.facts.device}",
        f"{count} problems are in both; the figures are over these.",
        "",
        tabulate(rows, ["figure", "A", "B", "B - A", "95% interval"], tablefmt="simple", disable_numparse=True),
    ]
    return "\n".join([*lines, *_candidate_lines(outcome)])


def _check_alike(a: StoredSuite, b: StoredSuite) -> None:
    if a.facts.label != b.facts.label:
        raise Incomparable(
            f"different devices: {a.label} ran on {a.facts.device}, {b.label} on {b.facts.device}; "
            "--force compares them"
        )
    names = a.facts.settings.keys() | b.facts.settings.keys()
    differing = sorted(name for name in names if a.facts.settings.get(name) != b.facts.settings.get(name))
    if differing:
        raise Incomparable(
            f"different settings: {', '.join(differing)} of {a.label} and {b.label}; --force compares them"
        )


def _is_one_kernel(a: Entry, b: Entry) -> bool:
    return a.source_sha256 == b.source_sha256 or not _SAMPLE.fullmatch(a.candidate)


def _figure_changes(a: StoredSuite, b: StoredSuite, problems: set[str]) -> list[FigureChange]:
    of_a, of_b = (
        {each.name: each for each in figures.series([e for e in side.entries.values() if e.problem in problems])}
        for side in (a, b)
    )
    return [_figure_change(of_a[name], of_b[name]) for name in of_a if name in of_b]


def _figure_change(a: figures.Series, b: figures.Series) -> FigureChange:
    """Returns the change of a figure. The difference is over the problems that have a value in both suites."""
    differences = [b.values[name] - a.values[name] for name in a.values if name in b.values]
    low, high = figures.interval(differences, len(differences))
    mean = sum(differences) / len(differences) if differences else 0.0
    bounds = (a.told(low), a.told(high))
    return FigureChange(a.name, a.figure.value, b.figure.value, a.told(mean), *bounds, a.geometric)


def _candidate_change(a: Entry, b: Entry) -> CandidateChange:
    if (a.passed, b.passed) != (True, True):
        change = {(True, False): Change.BROKEN, (False, True): Change.FIXED}.get((a.passed, b.passed), Change.FAILED)
        note = str(b.status) if a.status is b.status else f"{a.status} -> {b.status}"
        return CandidateChange(*a.id, change, None, note)
    if a.speedup is None or b.speedup is None:
        return CandidateChange(*a.id, Change.UNDECIDED, None, "no speedups")
    if a.baseline != b.baseline:
        return CandidateChange(*a.id, Change.UNDECIDED, None, f"timed against {a.baseline} in A and {b.baseline} in B")
    ratio = statistics.through_baseline(b.speedup, a.speedup)
    return CandidateChange(*a.id, Change(statistics.compare(ratio).value), ratio)


def _candidate_lines(outcome: SuiteOutcome) -> Sequence[str]:
    counts = {change: sum(c.change is change for c in outcome.candidates) for change in Change}
    if not outcome.candidates:
        return ["", "No candidate is in both suites."]
    told = ", ".join(f"{change.value} {count}" for change, count in counts.items() if count)
    changed = [c for c in outcome.candidates if c.change in (Change.BROKEN, Change.FIXED, Change.SLOWER, Change.FASTER)]
    order = [Change.BROKEN, Change.SLOWER, Change.FIXED, Change.FASTER]
    changed.sort(key=lambda c: order.index(c.change))
    rows = [
        (f"{c.problem}/{c.candidate}", c.change.value, "" if c.ratio is None else f"{c.ratio.estimate:.3g}x", c.note)
        for c in changed[:_MOST_ROWS]
    ]
    lines = ["", f"{len(outcome.candidates)} candidates are in both: {told}."]
    if rows:
        headers = ["candidate", "B is", "speedup B / A", ""]
        lines += ["", tabulate(rows, headers, tablefmt="simple", disable_numparse=True)]
    if len(changed) > len(rows):
        lines.append(f"... and {len(changed) - len(rows)} more")
    return lines


def both_suites(a: str, b: str | None, results: Path) -> tuple[StoredSuite, StoredSuite] | None:
    """Returns the two suites that the words `a` and `b` name; None if neither names a suite.

    Raises UserError if only one of them names a suite, or if `a` does and `b` is None.
    """
    found = [suite_named(word, results) if word else None for word in (a, b)]
    if found[0] is not None and found[1] is not None:
        return found[0], found[1]
    if found == [None, None]:
        return None
    if b is None:
        raise UserError(f"{a!r} names a suite; name a second suite to compare it with")
    raise UserError(
        f"{(a if found[0] else b)!r} names a suite and {(b if found[0] else a)!r} does not; name two suites"
    )
