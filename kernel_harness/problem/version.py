"""Finds one version of a kernel: a file, or a kernel of a problem as it was at a git revision."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from cuda_on_cpu.compile.candidate_file import source_text
from kernel_harness.core.errors import UserError
from kernel_harness.core.paths import kernel_folders
from kernel_harness.problem.candidate import Candidate
from kernel_harness.problem.lookup import kernel_files

WORKING_TREE = "now"  # the user's word for files as they are now, in place of a git revision
_SUFFIXES = (".py", ".cu")


def version(word: str, kernels: Sequence[str], problem: str, root: Path) -> Candidate:
    """Returns the version of a kernel that `word` selects: a file's path, a kernel of the problem, or a git revision.

    For a revision, `kernels` must hold the name or path of exactly one kernel. The word `now` in place of a revision
    selects the file as it is now. A kernel's name is looked up among the kernels of `problem`: below `root` first, and
    then among those shipped with the harness. The candidate's name is `word` for a path, and `<kernel>@<word>` for a
    revision. Raises UserError if `word` selects no kernel file, if `kernels` does not hold one kernel for a
    revision, or if git cannot be run.
    """
    path = Path(word)
    if path.suffix in _SUFFIXES and path.is_file():
        return Candidate(word, path, source_text(path))
    named_kernel = next((file for file in kernel_files(Path(problem).stem, root) if file.stem == word), None)
    if named_kernel is not None and not kernels:
        return Candidate(word, named_kernel, source_text(named_kernel))
    if len(kernels) != 1:
        raise UserError(
            f"{word!r} is neither a file, a kernel nor a run; to compare revisions, select one kernel with --kernel"
        )
    named = Path(kernels[0])
    is_path = named.suffix in _SUFFIXES
    folders = [named.parent] if is_path else [folder / Path(problem).stem for folder in kernel_folders(root)]
    names = [named.name] if is_path else [named.name + suffix for suffix in _SUFFIXES]
    for folder in folders:
        for name in names:
            source = _source_at(folder, name, word)
            if source is not None:
                return Candidate(f"{named.stem}@{word}", folder / name, source)
    places = " or ".join(map(str, folders))
    raise UserError(f"there is no {' or '.join(names)} at {word!r} in {places}: {_why_missing(folders, word)}")


def _source_at(folder: Path, name: str, revision: str) -> str | None:
    if revision == WORKING_TREE:
        path = folder / name
        return source_text(path) if path.is_file() else None
    shown = _git(folder, "show", f"{revision}:./{name}")
    return shown.stdout.decode("utf-8-sig", errors="replace") if shown.returncode == 0 else None


def _why_missing(folders: Sequence[Path], revision: str) -> str:
    if revision == WORKING_TREE:
        return "no such file"
    asked = [_git(folder, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}") for folder in folders]
    known = any(found.returncode == 0 for found in asked)
    return "that revision does not contain it" if known else "no such run, file or git revision"


def _git(folder: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["git", *words], cwd=folder, capture_output=True)
    except OSError as error:
        raise UserError(f"git cannot be run in {folder}: {error.strerror or error}") from None
