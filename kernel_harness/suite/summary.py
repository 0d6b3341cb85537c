"""The tables of a suite and their files: `figures.csv`, `summary.csv`, `candidates.csv`, `summary.md` and Parquet."""

from __future__ import annotations

import importlib.util
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from kernel_harness.core.atomic_file import replace_bytes
from kernel_harness.core.errors import UserError
from kernel_harness.results.cells import csv, ratio, table
from kernel_harness.results.journal import write, writing
from kernel_harness.suite import collection, figures
from kernel_harness.suite.device_worker import SuiteProblem
from kernel_harness.suite.figures import Figure
from kernel_harness.suite.store import Entry, Facts

EMULATED_NOTE = (
    "The times are the emulation's own and do not predict a GPU, so there are no figures of speed: no fast_p and no "
    "speedups."
)
_COLUMNS = (
    "problem", "candidate", "status", "time_ms", "speedup", "speedup_low", "speedup_high", "share_of_bound", "baseline",
    "as_called_speedup", "emulated", "same_as", "source_sha256", "seconds", "measured_at", "reason",
)  # fmt: skip
_LEAST_SHARE = 0.01  # of the time that a phase with a row of its own takes


@dataclass(frozen=True)
class Summary:
    """The facts of a suite, its verdicts (`entries`) and the figures over the verdicts."""

    facts: Facts
    entries: tuple[Entry, ...]
    """In the order of their problems."""
    figures: tuple[Figure, ...]
    levels: Mapping[str, int | None]
    """KernelBench's level of each problem, by its name."""

    @property
    def emulated(self) -> bool:
        """Whether the times are emulated."""
        return any(one.emulated for one in self.entries)


def summarize(facts: Facts, entries: Sequence[Entry], problems: Sequence[SuiteProblem]) -> Summary:
    """Returns the summary of verdicts, in the order of the suite's `problems`. Verdicts of other problems come last."""
    places = {problem.name: place for place, problem in enumerate(problems)}
    ordered = sorted(entries, key=lambda one: places.get(one.problem, len(places)))
    levels = {problem.name: collection.level(problem.path) for problem in problems}
    return Summary(facts, tuple(ordered), tuple(figures.figures(ordered)), levels)


def settings_words(facts: Facts) -> list[str]:
    """Returns what a reader has to know of a suite's settings, as short texts."""
    settings = facts.settings
    found = [f"relative to {settings.get('baseline')}", *(["quick"] if settings.get("quick") else [])]
    if settings.get("time_shapes"):
        found.append(f"timed at further shapes ({'; '.join(settings['time_shapes'])})")
    if settings.get("require_own_kernels"):
        found.append(f"own kernels do {settings['require_own_kernels']:g}% of the work or do not count as fast")
    return [*found, f"{settings['precision']} allowed"] if settings.get("precision") else found


def figure_rows(summary: Summary) -> list[dict[str, Any]]:
    """Returns a row for each figure: value, bounds of its 95% interval, number of problems with a value, definition."""
    names = ("value", "low", "high", "problems", "meaning")
    return [{"figure": f.name, **{name: getattr(f, name) for name in names}} for f in summary.figures]


def problem_rows(summary: Summary) -> list[dict[str, Any]]:
    """Returns a row for each problem: its level, numbers of candidates, passes and failures by status, best speedup."""
    rows = []
    for name, each in figures.by_problem(summary.entries).items():
        fastest = figures.best(each)
        failures = Counter(str(one.status) for one in each if not one.passed)
        rows.append({
            "problem": name, "level": summary.levels.get(name), "candidates": len(each),
            "passed": sum(one.passed for one in each), "best": fastest and fastest.candidate,
            **_speedup(fastest), "failures": ", ".join(f"{status} {n}" for status, n in failures.most_common()),
        })  # fmt: skip
    return rows


def candidate_rows(summary: Summary) -> list[dict[str, Any]]:
    """Returns a row for each candidate, with its verdict, its time in ms and its speedup."""
    rows = []
    for one in summary.entries:
        as_called = one.as_called and one.as_called.estimate
        row = {**vars(one), "status": str(one.status), **_speedup(one), "as_called_speedup": as_called}
        rows.append({name: row[name] for name in _COLUMNS})
    return rows


def _speedup(one: Entry | None) -> dict[str, float | None]:
    found = one.speedup if one else None
    values = (found.estimate, found.low, found.high) if found else (None,) * 3
    return dict(zip(("speedup", "speedup_low", "speedup_high"), values, strict=True))


def phase_rows(summary: Summary) -> list[tuple[str, float, float]]:
    """Returns a row (name, seconds, share) for each phase of the device workers' work, the longest phase first.

    `share` is the phase's share of the time of all phases, from 0 to 1. Phases with a share below 0.01 have no rows of
    their own. If there are any, the last row, "shorter phases", has the sum of their times and shares.
    """
    seconds: defaultdict[str, float] = defaultdict(float)
    for one in summary.entries:
        for name, each in one.phases_s.items():
            seconds[name] += each
    total = sum(seconds.values())
    rows = [(name, seconds[name], seconds[name] / total) for name in sorted(seconds, key=lambda name: -seconds[name])]
    long = [row for row in rows if row[2] >= _LEAST_SHARE]
    rest = sum(row[1] for row in rows[len(long) :])
    return [*long, ("shorter phases", rest, rest / total)] if rest else long


def require_parquet() -> None:
    """Raises UserError if the package that writes Parquet files is not installed."""
    if importlib.util.find_spec("pyarrow") is None:
        raise UserError("--parquet needs the package pyarrow: pip install pyarrow, or '.[parquet]' in a checkout")


def save_parquet(folder: Path, summary: Summary) -> Path:
    """Writes `candidates.parquet`: a row for each candidate, with the device and the settings. Returns its path.

    Raises Unwritable if the file cannot be written.
    """
    facts = {"device": summary.facts.device, **{f"setting_{k}": v for k, v in summary.facts.settings.items()}}
    numbers = dict.fromkeys(
        ("time_ms", "speedup", "speedup_low", "speedup_high", "as_called_speedup", "share_of_bound"), "float64"
    )
    table = pd.DataFrame(candidate_rows(summary)).astype(numbers).assign(**facts)
    path = folder / "candidates.parquet"
    with writing(path):
        replace_bytes(path, table.to_parquet(None, engine="pyarrow", index=False))
    return path


def text(summary: Summary, *, with_problems: bool = True) -> str:
    """Returns the summary as Markdown: what was judged and the figures.

    With `with_problems`, the definitions of the figures, a row for each problem, and the time of each phase follow.
    """
    counts = Counter(str(one.status) for one in summary.entries)
    judged = sum(one.same_as is None for one in summary.entries)
    lines = [
        f"# {_counted(len(summary.entries), 'candidate')} of "
        f"{_counted(len(figures.by_problem(summary.entries)), 'problem')} on {summary.facts.device}",
        "",
        f"{', '.join(f'{status} {count}' for status, count in counts.most_common())}. {judged} different candidates "
        f"were judged ({', '.join(settings_words(summary.facts))}).",
        "",
        _figure_table(summary),
    ]
    if summary.emulated:
        lines += ["", EMULATED_NOTE]
    if with_problems:
        lines += ["", "| figure | meaning |", "|---|---|", *(f"| {f.name} | {f.meaning} |" for f in summary.figures)]
        lines += ["", "## Problems", "", _problem_table(summary)]
        if phases := phase_rows(summary):
            rows = ((name, f"{seconds:.1f}", f"{share:.1%}") for name, seconds, share in phases)
            lines += ["", "## Time", "", table(["phase", "seconds", "share"], rows, "github")]
    return "\n".join(lines) + "\n"


def save(folder: Path, summary: Summary) -> Path:
    """Writes the CSV files and `summary.md` in `folder`, and returns the path of `summary.md`.

    Raises Unwritable if a file cannot be written.
    """
    tables = {
        "figures.csv": figure_rows(summary), "summary.csv": problem_rows(summary),
        "candidates.csv": candidate_rows(summary),
    }  # fmt: skip
    for name, rows in tables.items():
        write(folder / name, csv(list(rows[0]), rows))
    path = folder / "summary.md"
    write(path, text(summary))
    return path


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _figure_table(summary: Summary) -> str:
    bounds = {f.name: "" if f.bounds is None else " - ".join(map(ratio, f.bounds)) for f in summary.figures}
    rows = ((f.name, ratio(f.value), bounds[f.name], f.problems) for f in summary.figures)
    return table(["figure", "value", "95% interval", "problems"], rows, "github")


def _problem_table(summary: Summary) -> str:
    names = ["problem", "level", "candidates", "passed", "best", "speedup", "failures"]
    rows = ({**row, "speedup": row["speedup"] and f"{ratio(row['speedup'])}x"} for row in problem_rows(summary))
    return table(names, ([row[name] for name in names] for row in rows), "github")
