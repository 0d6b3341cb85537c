"""The HTML page of a suite: a heat map of problems and candidates, the figures, and each problem's verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_harness.core.status import Status
from kernel_harness.report.templating import TEMPLATES, rendered
from kernel_harness.results.journal import write
from kernel_harness.suite import figures
from kernel_harness.suite.collection import natural
from kernel_harness.suite.store import Entry
from kernel_harness.suite.summary import EMULATED_NOTE, Summary, settings_words

# The page lists the verdicts of at most MOST_LISTED candidates: each takes a quarter of a kilobyte.
MOST_LISTED = 5000
# A column is named after a candidate if the names fill the columns; otherwise each column is a place in its problem.
_LEAST_FILLED = 0.5
_LONGEST_REASON = 200
# The figures that the page shows first.
# fast_1 as the field defines it counts copies of the reference that were 0.1% faster by chance.
_HEADLINE = ("correct rate", "fast_1 (certain)", "fast_1 (best, certain)", "geometric mean speedup (best)")
# Lower bounds of the classes of speedup. The class of a cell is `speed-` and the place in this list.
_SPEEDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
_CLASSES = {
    Status.BUILD_ERROR: "unbuilt", Status.LOAD_ERROR: "unbuilt", Status.UNSUPPORTED: "unsupported",
    Status.RUNTIME_ERROR: "dead", Status.CRASHED: "dead", Status.TIMEOUT: "dead", Status.CHEATED: "cheated",
}  # fmt: skip
# The CSS classes of cells: the fastest class first, failures last.
_MEANINGS = {
    "speed-5": "2x and more",
    **{f"speed-{place}": f"{_SPEEDS[place]:g}x to {_SPEEDS[place + 1]:g}x" for place in (4, 3, 2, 1, 0)},
    "passed": "passed, no speedup", "wrong": "wrong answer", "dead": "raised, crashed or timed out",
    "unbuilt": "not built or loaded", "unsupported": "unsupported", "cheated": "cheated",
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """What the page shows of one problem, which is a row of the heat map."""

    problem: str
    level: int | None
    """The problem's level; None if it has none."""
    entries: tuple[Entry, ...]
    cells: tuple[Entry | None, ...]
    """An entry for each column, or None where the problem has no candidate."""
    passed: int
    """The number of candidates that passed."""
    best: Entry | None
    """The entry with the largest speedup."""
    link: str | None
    """The path of the problem's own page relative to that of the suite; None if there is no such page."""


def save(folder: Path, summary: Summary) -> Path:
    """Writes `suite.html` in `folder` and returns its path. Raises Unwritable if the file cannot be written."""
    path = folder / "suite.html"
    write(path, html(folder, summary))
    return path


def html(folder: Path, summary: Summary) -> str:
    """Returns the page as HTML text. `folder` is the suite's folder, in which pages of problems are looked for."""
    columns = column_names(summary.entries)
    found = rows(folder, summary, columns)
    facts = [
        summary.facts.device, f"{len(summary.entries)} candidates", f"{len(found)} problems",
        *settings_words(summary.facts), f"begun {summary.facts.created_at[:16].replace('T', ' ')}",
    ]  # fmt: skip
    return rendered(
        "suite", (TEMPLATES / "suite.css").read_text(encoding="utf-8"),
        suite=folder.name, facts=facts, emulated_note=EMULATED_NOTE if summary.emulated else "",
        columns=columns, rows=found, figures=summary.figures, kind=kind, shares=shares(summary.entries),
        meanings=_MEANINGS, headline=[figure for figure in summary.figures if figure.name in _HEADLINE],
        listed=len(summary.entries) <= MOST_LISTED, most_listed=MOST_LISTED, longest_reason=_LONGEST_REASON,
    )  # fmt: skip


def column_names(entries: Sequence[Entry]) -> list[str]:
    """Returns the columns' names: those of the candidates, or numbers if these names would leave most cells empty."""
    problems = figures.by_problem(entries)
    names = sorted({one.candidate for one in entries}, key=natural)
    if len(entries) >= _LEAST_FILLED * len(names) * len(problems):
        return names
    return [str(number) for number in range(1, max(map(len, problems.values())) + 1)]


def rows(folder: Path, summary: Summary, columns: Sequence[str]) -> list[Row]:
    """Returns a row for each problem, in the order of the suite."""
    found = []
    for name, entries in figures.by_problem(summary.entries).items():
        ordered = sorted(entries, key=lambda one: natural(one.candidate))
        places = {one.candidate: one for one in ordered}
        if not places.keys() <= set(columns):
            places = {str(place): one for place, one in enumerate(ordered, 1)}
        page = Path(name, summary.facts.label, "report.html")
        found.append(Row(
            name, summary.levels.get(name), tuple(ordered), tuple(map(places.get, columns)),
            sum(one.passed for one in entries), figures.best(entries),
            page.as_posix() if (folder / page).is_file() else None,
        ))  # fmt: skip
    return found


def shares(entries: Sequence[Entry]) -> dict[str, int]:
    """Returns how many entries have which CSS class, for the classes that occur, in the order of _MEANINGS."""
    counts = Counter(map(kind, entries))
    return {each: counts[each] for each in _MEANINGS if counts[each]}


def kind(one: Entry) -> str:
    """Returns the CSS class of a verdict: of its speedup if it has one, else of its status."""
    if not one.passed:
        return _CLASSES.get(one.status, "wrong")
    if one.speedup is None:
        return "passed"
    return f"speed-{sum(one.speedup.estimate >= bound for bound in _SPEEDS) - 1}"
