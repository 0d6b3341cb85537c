"""Names that people type -> problems, kernel files and devices. A name that fits nothing gets a suggestion."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from kernel_harness import candidate as candidates
from kernel_harness import device as devices
from kernel_harness import problem as problems
from kernel_harness.builtin import BASELINES
from kernel_harness.candidate import Candidate
from kernel_harness.cohort import SENTINEL
from kernel_harness.device import Device
from kernel_harness.errors import UserError
from kernel_harness.problem import Problem

# Names that no kernel may take: it would be shown the times of what has that name beside it.
RESERVED = (*BASELINES, SENTINEL)


class NotFound(UserError):
    """Nothing has that name; the message says what is close."""


def problem(name: str, root: Path) -> Problem:
    """A problem by name or by path. Raises NotFound, ProblemError."""
    path = Path(name)
    if path.suffix != ".py":
        path = root / "problems" / f"{name}.py"
    if not path.is_file():
        raise NotFound(f"no problem {name!r}{_close(name, problem_names(root))}")
    return problems.load(path.stem, path)


def problem_names(root: Path) -> list[str]:
    """Every problem of the checkout."""
    return sorted(p.stem for p in (root / "problems").glob("*.py") if not p.name.startswith("_"))


def kernels(wanted: Sequence[str], problem_name: str, root: Path) -> list[Candidate]:
    """Candidates by name, glob or path; all of the problem's where none is named. Raises NotFound.

    Two files of one name would share a row, so the second is refused.
    """
    folder = root / "kernels" / problem_name
    found = candidates.files(folder)
    if not wanted:
        if not found:
            raise NotFound(f"no kernels in {folder}; add a .py or .cu file there, or name files with --kernel")
        return _read(found)
    chosen: list[Path] = []
    for name in wanted:
        matches = _matches(name, found)
        if not matches:
            raise NotFound(f"no kernel {name!r}{_close(name, [p.stem for p in found])}")
        chosen += [m for m in matches if m not in chosen]
    return _read(chosen)


def device(name: str, *, strict: bool = False) -> Device:
    """The device of `--device`. Raises UserError for one that is not there."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()) or name.startswith("cpu:"):
        raise UserError(f"no device {name!r}; there are auto, cpu, cuda and cuda:N")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise UserError(
            f"no device {name!r}: torch sees {torch.cuda.device_count()} CUDA devices; --device cpu emulates one"
        )
    if strict and kind == "cuda":
        raise UserError("--strict is for the emulated device: on a GPU nvcc compiles every kernel anyway")
    return devices.named("cpu-strict" if strict else name)


def _matches(name: str, found: Iterable[Path]) -> list[Path]:
    path = Path(name)
    if path.is_file():
        return [path]
    return [p for p in found if fnmatch.fnmatch(p.stem, name) or p.name == name]


def _read(paths: Sequence[Path]) -> list[Candidate]:
    read: dict[str, Candidate] = {}
    for path in paths:
        one = candidates.read(path)
        if one.name in RESERVED:
            raise NotFound(f"{path}: the name {one.name!r} is taken; rename the file")
        if one.name in read:
            raise NotFound(f"two kernels are named {one.name!r}: {read[one.name].path} and {path}; rename one")
        read[one.name] = one
    return list(read.values())


def _close(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; there are {', '.join(names)}" if names else ""
