"""The folders of problem files, kernel files and results, and the form in which messages show a path or the command.

Problems and kernels are looked up in the folders `problems` and `kernels` of the current folder, then in the two
folders of these names that are shipped with the harness. In a checkout, the shipped folders are beside the package
`kernel_harness`. In an installation, they are in the folder `shipped` inside the package.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
INSTALLED = (_PACKAGE / "shipped").is_dir()
# The folder that `kernel_harness` is imported from: the checkout, or site-packages.
IMPORT_ROOT = _PACKAGE.parent
SHIPPED = _PACKAGE / "shipped" if INSTALLED else IMPORT_ROOT
# Relative, so that runs write to the current folder, wherever the harness is installed.
RESULTS = Path("results")
# The measured results that a checkout's README shows. No run writes there.
MEASURED = IMPORT_ROOT / "benchmarks" / "measured" / "results"


def problem_folders(root: Path | None = None) -> list[Path]:
    """Returns the existing folders of problem files, in lookup order: the current folder's, then the shipped one.

    If `root` is given, it takes the place of the current folder.
    """
    return _both("problems", root)


def kernel_folders(root: Path | None = None) -> list[Path]:
    """Returns the existing folders of kernels, in lookup order: the current folder's, then the shipped one.

    If `root` is given, it takes the place of the current folder. A folder of kernels has one sub-folder for each
    problem. Candidates can import modules that are beside the sub-folders, such as `custom_cuda_ops`.
    """
    return _both("kernels", root)


def hidden_from_workers() -> list[Path]:
    """Returns the existing folders that no worker may read, as absolute paths.

    These are the folder `results` of the current folder, the folders of problem files (`problem_folders`), and the git
    folders of the repositories that contain the current folder or a folder of problem files. A candidate must not read
    the reference. A problem file contains its source, and so may the history of a repository.
    """
    results = [RESULTS.absolute()] if RESULTS.is_dir() else []
    return [*problem_folders(), *results, *git_folders([Path.cwd(), *problem_folders()])]


def git_folders(folders: Iterable[Path]) -> list[Path]:
    """Returns the folders in which git keeps the history of the repositories that contain `folders`.

    In a worktree of git, `.git` is a file that names a folder of this worktree. That folder names the folder of the
    whole repository, which is returned.
    """
    found: dict[Path, None] = {}
    for above in dict.fromkeys(above for folder in folders for above in (folder.resolve(), *folder.resolve().parents)):
        git = above / ".git"
        with suppress(OSError, ValueError):
            if git.is_file():
                git = above / git.read_text().removeprefix("gitdir:").strip()
            if (git / "commondir").is_file():
                git /= (git / "commondir").read_text().strip()
            if git.is_dir():
                found[git.resolve()] = None
    return list(found)


def shown(path: Path) -> str:
    """Returns the path as text: relative to the current folder if it is below that folder, otherwise unchanged."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def python_path() -> str:
    """Returns the PYTHONPATH with which another Python finds this harness: its folder, then the present value."""
    return os.pathsep.join(filter(None, [str(IMPORT_ROOT), os.environ.get("PYTHONPATH")]))


def command(*, anywhere: bool = False) -> list[str]:
    """Returns the words that start the harness: `python harness.py` in a checkout, `kernel-harness` if installed.

    In a checkout, the path of harness.py is relative if the file is below the current folder. If `anywhere` is true,
    the path is absolute, so the words work in any folder.
    """
    script = IMPORT_ROOT / "harness.py"
    return ["kernel-harness"] if INSTALLED else ["python", str(script) if anywhere else shown(script)]


def _both(name: str, root: Path | None) -> list[Path]:
    own, shipped = (root or Path.cwd()) / name, SHIPPED / name
    folders = [own] if own.resolve() == shipped.resolve() else [own, shipped]
    return [folder for folder in folders if folder.is_dir()]
