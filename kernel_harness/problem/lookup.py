"""Finds problem files and kernel files by the names and paths that the user types. Suggests known names."""

from __future__ import annotations

import difflib
import fnmatch
import glob
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from kernel_harness.core.arms import RESERVED
from kernel_harness.core.errors import NotFound, UserError
from kernel_harness.core.paths import kernel_folders, problem_folders
from kernel_harness.problem import candidate as candidates
from kernel_harness.problem import problem as problems
from kernel_harness.problem.candidate import Candidate
from kernel_harness.problem.problem import Problem

# A source text that begins with one of these strings is a .cu file. Any other source text is Python.
_CUDA_BEGINNINGS = ("//", "/*", "#include", "#define", "#pragma", "#if")


def problem(name: str, root: Path) -> Problem:
    """Returns the problem that `name` selects (`problem_path`), at the sizes that the problem file sets.

    Raises NotFound if there is no such problem file, and ProblemError if the file cannot be used.
    """
    path = existing_problem_path(name, root)
    return problems.load(path.stem, path)


def existing_problem_path(name: str, root: Path) -> Path:
    """Returns the problem file that `name` selects (`problem_path`). Raises NotFound if there is no such file."""
    path = problem_path(name, root)
    if path is None:
        raise NotFound(f"no problem {name!r}{_close(name, problem_names(root))}")
    return path


def problem_path(name: str, root: Path) -> Path | None:
    """Returns the problem file that `name` selects; None if there is no such file.

    `name` is the path of a .py file, or a problem's name. A name is looked up in the folder `problems` of `root` first,
    and then among the problems shipped with the harness.
    """
    typed = Path(name)
    found = [typed] if typed.suffix == ".py" else [folder / f"{name}.py" for folder in problem_folders(root)]
    return next((path for path in found if path.is_file()), None)


def problem_names(root: Path) -> list[str]:
    """Returns the sorted names of problems, in `problems` of `root` or shipped, except names that begin with `_`."""
    found = (path for folder in problem_folders(root) for path in folder.glob("*.py"))
    return sorted({path.stem for path in found if not path.name.startswith("_")})


def kernel_files(problem_name: str, root: Path) -> list[Path]:
    """Returns the kernel files of a problem: first those in `kernels/<problem_name>` of `root`, then those shipped.

    A shipped file is left out if a kernel of the same name (the file's name without suffix) exists below `root`.
    """
    found: list[Path] = []
    for folder in kernel_folders(root):
        taken = {path.stem for path in found}
        found += [path for path in candidates.files(folder / problem_name) if path.stem not in taken]
    return found


def kernels(wanted: Sequence[str], problem_name: str, root: Path) -> list[Candidate]:
    """Returns the candidates that the names, globs and paths in `wanted` select; if `wanted` is empty, all candidates.

    Raises NotFound if a word, or an empty `wanted`, selects no kernel file. Also raises NotFound if a candidate has the
    name of a baseline or of the control, or two candidates have one name: they would share a row of the leaderboard.
    """
    found = kernel_files(problem_name, root)
    if not wanted:
        if not found:
            folder = root / "kernels" / problem_name
            raise NotFound(f"no kernels in {folder}; add a .py or .cu file there, or name files with --kernel")
        return _read(found)
    chosen: list[Path] = []
    for name in wanted:
        matches = _matches(name, found)
        if not matches:
            raise NotFound(f"no kernel {name!r}{_close(name, [p.stem for p in found])}")
        chosen += [m for m in matches if m not in chosen]
    return _read(chosen)


def asked_for(wanted: Sequence[str], found: Iterable[Candidate]) -> set[str]:
    """Returns the names of the candidates in `found` that a name or a path in `wanted` selects, and not only a glob."""
    words = [word for word in wanted if not glob.has_magic(word)]
    return {each.name for each in found if any(each.path in _matches(word, [each.path]) for word in words)}


def kernel(name: str, problem_name: str, root: Path) -> Candidate:
    """Returns the one candidate that `name`, a name, glob or path, selects.

    Raises NotFound if `name` selects no candidate or several.
    """
    chosen = kernels([name], problem_name, root)
    if len(chosen) != 1:
        raise NotFound(
            f"{name!r} selects {len(chosen)} kernels; choose one of {', '.join(each.name for each in chosen)}"
        )
    return chosen[0]


def source(given: str | Path) -> Candidate:
    """Returns the candidate that a text holds, or that the file at a path holds.

    A path is a `Path`, or a string of one line that ends in .py or .cu. A text that begins with a C++ comment or a
    preprocessor line is a .cu file, any other text is Python. The candidate of a text is named `candidate`.
    Raises NotFound for a path without a file and for a reserved name, and UserError for a file with a wrong suffix.
    """
    # No kernel is one line of code that ends in .py or .cu.
    if isinstance(given, Path) or ("\n" not in given and given.endswith((".py", ".cu"))):
        path = Path(given)
        if path.suffix not in (".py", ".cu"):
            raise UserError(f"{path}: the name of a kernel file ends in .py or .cu")
        if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises OSError for a name that is too long
            raise NotFound(f"there is no file {path}")
        candidate = candidates.read(path)
        check_not_reserved(candidate.name, path)
        return candidate
    return of_text(given)


def of_text(given: str, suffix: str | None = None) -> Candidate:
    """Returns the candidate `candidate` that a text holds, of a file with this suffix. Never reads a file.

    Without a suffix the beginning of the text decides (`source`).
    """
    text = given.encode(errors="replace").decode()  # a text from JSON may have halves of characters
    suffix = suffix or (".cu" if text.lstrip().startswith(_CUDA_BEGINNINGS) else ".py")
    return Candidate("candidate", Path(f"candidate{suffix}"), text)


def check_not_reserved(name: str, path: Path) -> None:
    """Raises NotFound if a kernel, whose file is at `path`, has the name of a baseline or of the control."""
    if name in RESERVED:
        raise NotFound(f"{path}: the name {name!r} is reserved for an arm of the harness; rename the file")


def _matches(name: str, found: Iterable[Path]) -> list[Path]:
    path = Path(name)
    if path.is_file():
        return [path]
    if os.sep in name:
        with suppress(RuntimeError):  # the home folder of an unknown user
            return [p for p in candidates.files(path.parent.expanduser()) if fnmatch.fnmatch(p.name, path.name)]
        return []
    return [p for p in found if fnmatch.fnmatch(p.stem, name) or p.name == name]


def _read(paths: Sequence[Path]) -> list[Candidate]:
    read: dict[str, Candidate] = {}
    for path in paths:
        one = candidates.read(path)
        check_not_reserved(one.name, path)
        if one.name in read:
            raise NotFound(f"two kernels are named {one.name!r}: {read[one.name].path} and {path}; rename one")
        read[one.name] = one
    return list(read.values())


def _close(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; there are {', '.join(names)}" if names else ""
