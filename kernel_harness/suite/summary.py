"""The tables of a suite and their files: `figures.csv`, `summary.csv`, `candidates.csv`, `summary.md` and Parquet."""

from __future__ import annotations

import importlib.util
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from tabulate import tabulate

from kernel_harness.core.atomic_file import replace_bytes, replace_text
from kernel_harness.core.errors import UserError
from kernel_harness.results.journal import writing
from kernel_harness.results.leaderboard import csv, markdown
from kernel_harness.suite import figures
from kernel_harness.suite.figures import Figure
from kernel_harness.suite.store import Entry, Facts

EMULATED_NOTE = (
    "The times are the emulation's own and do not predict a GPU, so there are no figures of speed: no fast_p and no "
    "speedups."
)
_LEAST_SHARE = 0.01  # of the time that a phase with a row of its own takes


@dataclass(frozen=True)
class Summary:
    """The facts of a suite, its verdicts (`entries`) and the figures over the verdicts."""

    facts: Facts
    entries: tuple[Entry, ...]
    figures: tuple[Figure, ...]

    @property
    def emulated(self) -> bool:
        """Whether the times are emulated."""
        return any(one.emulated for one in self.entries)


def summarize(facts: Facts, entries: Sequence[Entry]) -> Summary:
    """Returns the summary of a suite's verdicts."""
    return Summary(facts, tuple(entries), tuple(figures.figures(entries)))


def figure_rows(summary: Summary) -> pd.DataFrame:
    """Returns a row for each figure: value, bounds of its 95% interval, number of problems with a value, definition."""
    names = ("figure", "value", "low", "high", "problems", "meaning")
    rows = [(f.name, f.value, f.low, f.high, f.problems, f.meaning) for f in summary.figures]
    return pd.DataFrame(rows, columns=list(names))


def problem_rows(summary: Summary) -> pd.DataFrame:
    """Returns a row for each problem: numbers of candidates, passes and failures by status, and the largest speedup."""
    rows = [_problem_row(name, each) for name, each in figures.by_problem(summary.entries).items()]
    names = ("problem", "candidates", "passed", "best", "speedup", "speedup_low", "speedup_high", "failures")
    return pd.DataFrame(rows, columns=list(names))


def candidate_rows(summary: Summary) -> pd.DataFrame:
    """Returns a row for each candidate, with its verdict, its time in ms and its speedup."""
    return pd.DataFrame([_candidate_row(one) for one in summary.entries])


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
    numbers = dict.fromkeys(("time_ms", "speedup", "speedup_low", "speedup_high", "share_of_bound"), "float64")
    table = candidate_rows(summary).astype(numbers).assign(**facts)
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
        f"were judged{_settings_text(summary.facts.settings)}.",
        "",
        _table(summary),
    ]
    if summary.emulated:
        lines += ["", EMULATED_NOTE]
    if with_problems:
        lines += ["", "| figure | meaning |", "|---|---|", *(f"| {f.name} | {f.meaning} |" for f in summary.figures)]
        lines += ["", "## Problems", "", _problem_table(summary)]
        if phases := phase_rows(summary):
            lines += ["", "## Time", "", _phase_table(phases)]
    return "\n".join(lines) + "\n"


def save(folder: Path, summary: Summary) -> Path:
    """Writes the CSV files and `summary.md` in `folder`, and returns the path of `summary.md`.

    Raises Unwritable if a file cannot be written.
    """
    tables = {
        "figures.csv": figure_rows(summary), "summary.csv": problem_rows(summary),
        "candidates.csv": candidate_rows(summary),
    }  # fmt: skip
    for name, table in tables.items():
        with writing(folder / name):
            replace_text(folder / name, csv(table))
    path = folder / "summary.md"
    with writing(path):
        replace_text(path, text(summary))
    return path


def _problem_row(name: str, entries: Sequence[Entry]) -> tuple[Any, ...]:
    fastest = figures.best(entries)
    speedup = fastest.speedup if fastest else None
    failures = Counter(str(one.status) for one in entries if not one.passed)
    return (
        name, len(entries), sum(one.passed for one in entries), fastest and fastest.candidate,
        speedup and speedup.estimate, speedup and speedup.low, speedup and speedup.high,
        ", ".join(f"{status} {count}" for status, count in failures.most_common()),
    )  # fmt: skip


def _candidate_row(one: Entry) -> dict[str, Any]:
    speedup = one.speedup
    return {
        "problem": one.problem,
        "candidate": one.candidate,
        "status": str(one.status),
        "time_ms": one.time_ms,
        "speedup": speedup and speedup.estimate,
        "speedup_low": speedup and speedup.low,
        "speedup_high": speedup and speedup.high,
        "share_of_bound": one.share_of_bound,
        "baseline": one.baseline,
        "emulated": one.emulated,
        "same_as": one.same_as,
        "source_sha256": one.source_sha256,
        "seconds": one.seconds,
        "measured_at": one.measured_at,
        "reason": one.reason,
    }


def _phase_table(rows: Sequence[tuple[str, float, float]]) -> str:
    told = [(name, f"{seconds:.1f}", f"{share:.1%}") for name, seconds, share in rows]
    return tabulate(told, ["phase", "seconds", "share"], tablefmt="github", disable_numparse=True)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _settings_text(settings: Mapping[str, Any]) -> str:
    told = [f"relative to {settings.get('baseline')}"]
    told += ["quick"] if settings.get("quick") else []
    told += [f"{settings['precision']} allowed"] if settings.get("precision") else []
    return f" ({', '.join(told)})"


def _table(summary: Summary) -> str:
    rows = [(f.name, f"{f.value:.3g}", _bounds(f), f.problems) for f in summary.figures]
    return tabulate(rows, ["figure", "value", "95% interval", "problems"], tablefmt="github", disable_numparse=True)


def _bounds(figure: Figure) -> str:
    return "" if figure.low is None or figure.high is None else f"{figure.low:.3g} - {figure.high:.3g}"


def _problem_table(summary: Summary) -> str:
    headers = ["problem", "candidates", "passed", "best", "speedup", "failures"]
    rows = []
    for name, each in figures.by_problem(summary.entries).items():
        problem, count, passed, fastest, speedup, _, _, failures = _problem_row(name, each)
        shown = "" if speedup is None else f"{speedup:.3g}x"
        rows.append((markdown(problem), count, passed, markdown(fastest or ""), shown, markdown(failures)))
    return tabulate(rows, headers, tablefmt="github", disable_numparse=True)
