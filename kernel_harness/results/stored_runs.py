"""Finds the stored results that an argument of `compare` names: a file, a folder, a run, `latest` or `previous`."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernel_harness.core.errors import UserError
from kernel_harness.results import comparison
from kernel_harness.results.comparison import Side
from kernel_harness.results.journal import Journal
from kernel_harness.results.record import Result, interrupted

LATEST, PREVIOUS = "latest", "previous"
_RESULT_FILES = (".jsonl", ".csv", ".md", ".html")
# An argument with fewer characters is not looked up as the beginning of a run's id, because it would match by chance.
_SHORTEST_PREFIX = 4


def side_named(word: str, results: Path, problem: str | None = None, kernels: Sequence[str] = ()) -> Side | None:
    """Returns the stored results that `word` names, as a side of a comparison. Returns None if it names no run.

    `word` is the path of a file runs.jsonl, the folder of such a file, the beginning of a run's id (at least 4
    characters), LATEST or PREVIOUS. `results` is the folder of all stored results. `problem` limits the search for a
    run to one problem. `kernels` (names or globs) limits the side to some kernels; if empty, it has all. Raises
    UserError if `word` names several runs, a folder without runs.jsonl, a file that is missing or not a .jsonl file,
    or a file or a run without results of these kernels.
    """
    path = Path(word)
    if path.is_dir() or path.suffix in _RESULT_FILES:
        return _in_file(path, results, kernels)
    found = _runs(word, results, problem)
    if len(found) > 1:
        places = ", ".join(f"{name} in {folder}" for folder, name in found)
        raise UserError(f"{word!r} may be {places}; name the run in full, or name its problem with --problem")
    for folder, name in found:
        runs = _by_run(folder)
        return _side(f"run {name}{_incomplete(word, name, runs)}", runs[name], kernels, folder.parent.name)
    return None


def _by_run(folder: Path) -> dict[str, list[Result]]:
    """Returns the stored results in `folder` by the id of their run. The runs are ordered from old to new."""
    runs: dict[str, list[Result]] = {}
    for result in Journal(folder).read():
        runs.setdefault(result.run, []).append(result)
    return runs


def _incomplete(word: str, name: str, runs: Mapping[str, Sequence[Result]]) -> str:
    """Returns a remark for the label of the run `name`, or an empty text if no interrupted run is to be mentioned.

    If the run itself was interrupted, the remark says so. Otherwise, if `word` is LATEST or PREVIOUS, the remark names
    the later runs that were left out because they were interrupted.
    """
    if interrupted(runs[name]):
        return " (interrupted)"
    later = [each for each in list(runs)[list(runs).index(name) + 1 :] if interrupted(runs[each])]
    named = bool(later) and word in (LATEST, PREVIOUS)
    return f" (later runs left out because they were interrupted: {', '.join(later)})" if named else ""


def _in_file(path: Path, results: Path, kernels: Sequence[str]) -> Side:
    file = path / "runs.jsonl" if path.is_dir() else path
    if file.suffix != ".jsonl":
        raise UserError(f"{path} holds no samples; name the runs.jsonl beside it")
    if not file.is_file():
        raise UserError(f"there is no {file}")
    problem = file.resolve().parent.parent
    known = problem.name if problem.parent == results.resolve() else None
    return _side(str(path), Journal(file.parent, file.name).read(), kernels, known)


def _side(label: str, results: Sequence[Result], kernels: Sequence[str], problem: str | None) -> Side:
    chosen = [r for r in results if not kernels or any(fnmatch.fnmatch(r.kernel, k) for k in kernels)]
    if not chosen:
        wanted = f" of {', '.join(kernels)}" if kernels else ""
        raise UserError(f"{label} has no results{wanted}")
    return comparison.side(label, chosen, problem)


def _runs(word: str, results: Path, problem: str | None) -> list[tuple[Path, str]]:
    """Returns (folder, run id) of every stored run that `word` may name: the beginning of an id, LATEST or PREVIOUS.

    `results` is the folder of all stored results. `problem` None stands for all problems. Fewer than 4 characters name
    no run. For LATEST and PREVIOUS there is at most one run per problem: the last run, or the run before the last, on
    the device that the problem last ran on. Interrupted runs do not count for these two, unless fewer than one (for
    LATEST) or two (for PREVIOUS) complete runs are stored there.
    """
    named, complete = {}, {}
    for path in results.glob(f"{Path(problem).stem if problem else '*'}/*/runs.jsonl"):
        if runs := _by_run(path.parent):
            named[path.parent] = list(runs)
            complete[path.parent] = [name for name, stored in runs.items() if not interrupted(stored)]
    place = {LATEST: -1, PREVIOUS: -2}.get(word)
    if place is None:
        found = [(folder, name) for folder, names in named.items() for name in names if name.startswith(word)]
        return sorted(found) if len(word) >= _SHORTEST_PREFIX else []
    # A run's id begins with the time it started, so the last folder per problem is the most recent one.
    last = {folder.parent: folder for folder in sorted(named, key=lambda folder: named[folder][-1])}
    counted = {folder: max(complete[folder], named[folder], key=lambda names: len(names) >= -place) for folder in named}
    return [(folder, counted[folder][place]) for folder in sorted(last.values()) if len(counted[folder]) >= -place]
