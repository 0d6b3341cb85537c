"""Finds the problems and the candidates of a suite. Runs no file."""

from __future__ import annotations

import glob
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_harness.core.errors import UserError
from kernel_harness.problem import candidate as candidates
from kernel_harness.problem import lookup
from kernel_harness.problem.candidate import Candidate
from kernel_harness.suite.device_worker import SuiteProblem, Task

# The names that KernelBench gives to generated kernels, and to problem files in the folders level1, level2, ...
_GENERATED = re.compile(r"level_(\d+)_problem_(\d+)_(sample_\d+)_kernel")
_NUMBERED = re.compile(r"(\d+)_")
_LEVEL = re.compile(r"level_?(\d+)")
_MOST_NAMED = 5


@dataclass(frozen=True)
class Collection:
    """The problems and tasks of a suite. `unmatched` has the kernel files that belong to no problem of the suite."""

    problems: tuple[SuiteProblem, ...]
    tasks: tuple[Task, ...]
    unmatched: tuple[Path, ...]


def collect(words: Sequence[str], kernels: Path, root: Path) -> Collection:
    """Returns the problems that `words` select, and a task for each candidate below `kernels` that belongs to one.

    A word is a folder of problem files, a glob, the path of a problem file or the name of a problem, which is looked up
    in `root`/problems first and then among the shipped problems. In a folder, KernelBench's folders `level1`,
    `level2`, ... are searched too. A candidate is a file `<problem>/<name>.py` or `.cu` at any depth below the folder
    `kernels`, or one that KernelBench has named, such as `level_1_problem_7_sample_0_kernel.py`, the candidate
    `sample_0`. Tasks are ordered by problem.
    Raises UserError if a word selects no problem, if `kernels` is no folder, if no candidate belongs to a problem, if
    two problems or two candidates of a problem have the same name, or if a candidate has the name of a baseline or of
    the control.
    """
    problems = _problems(words, root)
    if not kernels.is_dir():
        raise UserError(f"there is no folder {kernels}")
    found, unmatched = _candidates(kernels, problems)
    tasks = [Task(problem, one) for problem in problems for one in found[problem]]
    if not tasks:
        raise UserError(
            f"no file in {kernels} belongs to a problem of the suite. Use names such as {problems[0].name}/NAME.py or "
            ".cu, or those of KernelBench: level_1_problem_7_sample_0_kernel.py"
        )
    return Collection(tuple(problems), tuple(tasks), tuple(unmatched))


def unmatched_note(collection: Collection) -> str:
    """Returns a sentence on the kernel files that belong to no problem of the suite; an empty text without any."""
    paths = collection.unmatched
    if not paths:
        return ""
    named = ", ".join(map(str, paths[:_MOST_NAMED])) + (", ..." if len(paths) > _MOST_NAMED else "")
    return f"{len(paths)} kernel files belong to no problem of the suite and are left out: {named}"


def _problems(words: Sequence[str], root: Path) -> list[SuiteProblem]:
    paths: dict[Path, None] = {}
    for word in words:
        found = list(_files_of(word, root))
        if not found:
            raise UserError(f"{word!r} selects no problem file; name a folder, a glob, a file or a problem")
        paths.update((path.resolve(), None) for path in found)
    ordered = sorted(paths, key=_by_folder)
    stems = Counter(path.stem for path in ordered)
    names = {path: path.stem if stems[path.stem] == 1 else f"{path.parent.name}_{path.stem}" for path in ordered}
    problems = [SuiteProblem(names[path], path, hashlib.sha256(path.read_bytes()).hexdigest()) for path in ordered]
    twice = [name for name, count in Counter(problem.name for problem in problems).items() if count > 1]
    if twice:
        raise UserError(f"two problem files have the name {twice[0]!r}; rename one")
    return problems


def _files_of(word: str, root: Path) -> Iterator[Path]:
    path = Path(word)
    if path.is_dir():
        folders = [path, *(below for below in path.iterdir() if below.is_dir() and _LEVEL.fullmatch(below.name))]
        for folder in folders:
            yield from (file for file in candidates.files(folder) if file.suffix == ".py")
    elif glob.has_magic(word):
        names = glob.glob(word, recursive=True)  # noqa: PTH207 - a Path finds no absolute pattern
        yield from (Path(name) for name in names if name.endswith(".py"))
    elif (found := lookup.problem_path(word, root)) is not None:
        yield found


def natural(name: str) -> list[tuple[int, str]]:
    """Returns a key that sorts `sample_2` before `sample_10`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.findall(r"\d+|\D+", name)]


def _by_folder(path: Path) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    return natural(str(path.parent)), natural(path.name)


def _candidates(
    kernels: Path, problems: Sequence[SuiteProblem]
) -> tuple[dict[SuiteProblem, list[Candidate]], list[Path]]:
    by_name = {problem.name: problem for problem in problems}
    by_place = {(problem.path.parent.name, problem.path.stem): problem for problem in problems}
    by_number = {number: problem for problem in problems if (number := _number(problem.path))}
    found: dict[tuple[SuiteProblem, str], Candidate] = {}
    unmatched: list[Path] = []
    for path in _kernel_files(kernels):
        one, folder, generated = candidates.read(path), path.parent, _GENERATED.fullmatch(path.stem)
        if generated:
            one = replace(one, name=generated[3])
            problem = by_number.get((int(generated[1]), int(generated[2])))
        else:
            problem = by_name.get(folder.name) or by_place.get((folder.parent.name, folder.name))
        if problem is None:
            unmatched.append(path)
            continue
        lookup.check_not_reserved(one.name, path)
        if (other := found.setdefault((problem, one.name), one)) is not one:
            raise UserError(f"two candidates have the name {one.name!r}: {other.path} and {path}; rename one")
    by_problem: dict[SuiteProblem, list[Candidate]] = {problem: [] for problem in problems}
    for (problem, _), one in found.items():
        by_problem[problem].append(one)
    return by_problem, unmatched


def _kernel_files(kernels: Path) -> Iterable[Path]:
    """Returns the kernel files in the folder `kernels` and at any depth below it.

    They are sorted by folder, and in a folder in natural order (`sample_2` before `sample_10`). A file is left out if
    its name or the name of a folder between `kernels` and the file begins with `_` or a dot.
    """
    below = (path for path in kernels.rglob("*") if path.is_dir())
    shown = (path for path in below if not re.search(r"(?:^|/)[_.]", path.relative_to(kernels).as_posix()))
    return sorted((file for folder in (kernels, *shown) for file in candidates.files(folder)), key=_by_folder)


def level(problem: Path) -> int | None:
    """Returns KernelBench's level of a problem file, which is in a folder such as `level1`; None for another folder."""
    found = _LEVEL.fullmatch(problem.parent.name)
    return int(found[1]) if found else None


def _number(problem: Path) -> tuple[int, int] | None:
    """Returns KernelBench's level and number for a problem file, such as (1, 7) for `level1/7_Matmul.py`.

    Returns None if the folder or the file has a name of another form.
    """
    of_level, number = level(problem), _NUMBERED.match(problem.name)
    return None if of_level is None or number is None else (of_level, int(number[1]))
