"""The verb `new`: a kernel file that builds and passes as it stands, to be turned into one's own. Runs no kernel."""

from __future__ import annotations

import re
from pathlib import Path

from kernel_harness.errors import UserError
from kernel_harness.find import RESERVED
from kernel_harness.new import cuda_file, python_file
from kernel_harness.new.signature import signature
from kernel_harness.problem import Problem


class CannotWrite(UserError):
    """The file asked for cannot be made."""


def new(problem: Problem, name: str, root: Path, *, cu: bool = False) -> Path:
    """Writes `kernels/<problem>/<name>.py` (or `.cu`) under `root`. The path.

    Raises CannotWrite for a name that is taken or is none, and for a problem that no plain .cu can answer.
    """
    stem, suffix = _stem_and_suffix(name, cu)
    path = root / "kernels" / problem.name / f"{stem}{suffix}"
    for taken in (path.with_suffix(".py"), path.with_suffix(".cu")):
        if taken.exists():
            raise CannotWrite(f"{taken} is there already, and both would share one row; choose another name")
    described = signature(problem)
    try:
        text = (cuda_file if suffix == ".cu" else python_file).text(problem, stem, described)
    except cuda_file.NotPlain as reason:
        raise CannotWrite(
            f"{problem.path}: {reason}, which a plain .cu cannot; leave --cu out for a Python file that can"
        ) from None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written: {error.strerror}") from None
    return path


def _stem_and_suffix(name: str, cu: bool) -> tuple[str, str]:
    stem = re.sub(r"\.(?:py|cu)$", "", name)
    if not re.fullmatch(r"[A-Za-z0-9][\w-]*", stem) or stem in RESERVED:
        raise CannotWrite(f"{name!r} is no name for a kernel; use letters, digits, _ and -, such as 'tiled_64'")
    return stem, ".cu" if cu or name.endswith(".cu") else ".py"
