"""The HTML page of a suite: a heat map of problems and candidates, the figures, and each problem's verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_harness.core.atomic_file import replace_text
from kernel_harness.core.status import Status
from kernel_harness.report.templating import TEMPLATES, rendered
from kernel_harness.results.journal import writing
from kernel_harness.suite import figures
from kernel_harness.suite.collection import natural
from kernel_harness.suite.store import Entry
from kernel_harness.suite.summary import EMULATED_NOTE, Summary

# The page lists the verdicts of at most MOST_LISTED candidates: each takes a quarter of a kilobyte.
MOST_LISTED = 5000
# A column is named after a candidate if the names fill the columns; otherwise each column is a place in its problem.
_LEAST_FILLED = 0.5
_LONGEST_REASON = 200
# The figures that the page shows first.
_HEADLINE = ("correct rate", "fast_1", "fast_1 (best)", "geometric mean speedup (best)")
# Lower bounds of the classes of speedup. The class of a cell is `speed-` and the place in this list.
_SPEEDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
_CLASSES = {
    Status.BUILD_ERROR: "unbuilt", Status.LOAD_ERROR: "unbuilt", Status.UNSUPPORTED: "unsupported",
    Status.RUNTIME_ERROR: "dead", Status.CRASHED: "dead", Status.TIMEOUT: "dead", Status.CHEATED: "cheated",
}  # fmt: skip
_MEANINGS = {
    "passed": "passed, no speedup", "wrong": "wrong answer", "dead": "raised, crashed or timed out",
    "unbuilt": "not built or loaded", "unsupported": "unsupported", "cheated": "cheated",
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """A cell of the heat map.

    `kind` is the CSS class of the cell, which gives the colour. `words` is the text of the cell's tooltip. `passed`
    says whether the candidate passed.
    """

    kind: str
    words: str
    passed: bool


@dataclass(frozen=True)
class Row:
    """What the page shows of one problem, which is a row of the heat map.

    `anchor` is the HTML id of the problem's section. `cells` has a cell for each column, or None where the problem has
    no candidate. `passed` is the number of candidates that passed, and `best` the entry with the largest speedup, or
    None. `link` is the path of the problem's own page relative to that of the suite; None if there is no such page.
    """

    problem: str
    anchor: str
    cells: tuple[Cell | None, ...]
    passed: int
    best: Entry | None
    entries: tuple[Entry, ...]
    link: str | None


@dataclass(frozen=True)
class Share:
    """A CSS class of cells: its meaning, the number of cells, and their share of all cells in percent."""

    kind: str
    meaning: str
    count: int
    percent: float


def save(folder: Path, summary: Summary) -> Path:
    """Writes `suite.html` in `folder` and returns its path. Raises Unwritable if the file cannot be written."""
    path = folder / "suite.html"
    with writing(path):
        replace_text(path, html(folder, summary))
    return path


def html(folder: Path, summary: Summary) -> str:
    """Returns the page as HTML text. `folder` is the suite's folder, in which pages of problems are looked for."""
    columns = column_names(summary.entries)
    found = rows(folder, summary, columns)
    return rendered(
        "suite", (TEMPLATES / "suite.css").read_text(encoding="utf-8"),
        suite=folder.name, facts=told_facts(summary), emulated_note=EMULATED_NOTE if summary.emulated else "",
        columns=columns, rows=found, figures=summary.figures, shares=shares(found),
        headline=[figure for figure in summary.figures if figure.name in _HEADLINE],
        listed=len(summary.entries) <= MOST_LISTED, most_listed=MOST_LISTED, longest_reason=_LONGEST_REASON,
    )  # fmt: skip


def told_facts(summary: Summary) -> list[str]:
    """Returns the texts at the head of the page: the device, the numbers of candidates and problems, and settings."""
    settings = summary.facts.settings
    return [
        summary.facts.device, f"{len(summary.entries)} candidates",
        f"{len(figures.by_problem(summary.entries))} problems", f"relative to {settings.get('baseline')}",
        *(["quick"] if settings.get("quick") else []),
        *([f"{settings['precision']} allowed"] if settings.get("precision") else []),
        f"begun {summary.facts.created_at[:16].replace('T', ' ')}",
    ]  # fmt: skip


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
    for number, (name, entries) in enumerate(figures.by_problem(summary.entries).items()):
        ordered = sorted(entries, key=lambda one: natural(one.candidate))
        places = {one.candidate: one for one in ordered}
        if not places.keys() <= set(columns):
            places = {str(place): one for place, one in enumerate(ordered, 1)}
        cells = tuple(_cell(places[column]) if column in places else None for column in columns)
        page = Path(name, summary.facts.label, "report.html")
        found.append(Row(
            name, f"problem-{number}", cells, sum(one.passed for one in entries), figures.best(entries),
            tuple(ordered), page.as_posix() if (folder / page).is_file() else None,
        ))  # fmt: skip
    return found


def shares(found: Sequence[Row]) -> list[Share]:
    """Returns the CSS classes that occur, with their shares of all cells: the fastest class first, failures last."""
    counts = Counter(cell.kind for row in found for cell in row.cells if cell is not None)
    order: Mapping[str, str] = {**_speed_meanings(), **_MEANINGS}
    return [Share(k, order[k], counts[k], 100 * counts[k] / counts.total()) for k in order if counts[k]]


def kind(one: Entry) -> str:
    """Returns the CSS class of a verdict: of its speedup if it has one, else of its status."""
    if not one.passed:
        return _CLASSES.get(one.status, "wrong")
    if one.speedup is None:
        return "passed"
    return f"speed-{sum(one.speedup.estimate >= bound for bound in _SPEEDS) - 1}"


def _speed_meanings() -> dict[str, str]:
    above = [*_SPEEDS[1:], None]
    texts = [
        f"{low:g}x to {high:g}x" if high else f"{low:g}x and more" for low, high in zip(_SPEEDS, above, strict=True)
    ]
    return {f"speed-{place}": text for place, text in reversed([*enumerate(texts)])}


def _cell(one: Entry) -> Cell:
    speedup = "" if one.speedup is None else f", {one.speedup.estimate:.3g}x"
    bound = "" if one.share_of_bound is None else f", {one.share_of_bound:.0%} of the bound"
    return Cell(kind(one), f"{one.candidate}: {one.status}{speedup}{bound}", one.passed)
