"""Writes a new kernel file, which builds and passes unchanged, as a starting point. Runs no kernel."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jinja2
import torch

from kernel_harness.core.arms import RESERVED
from kernel_harness.core.errors import UserError
from kernel_harness.problem.problem import Problem
from kernel_harness.scaffold import model_source, operators
from kernel_harness.scaffold.signature import signature


def new(problem: Problem, name: str, root: Path, *, cu: bool = False) -> Path:
    """Writes `kernels/<problem>/<name>.py` below `root`, or a `.cu` file if `cu` is true, and returns the file's path.

    If `name` itself ends in .py or .cu, the file has this suffix (with `cu`, always .cu). Raises UserError if the
    name is invalid or a kernel in that folder has it, if the reference fails or a `.cu` file cannot express it, or if
    the file cannot be written.
    """
    stem, suffix = _stem_and_suffix(name, cu)
    path = root / "kernels" / problem.name / f"{stem}{suffix}"
    for taken in (path.with_suffix(".py"), path.with_suffix(".cu")):
        if taken.exists():
            raise UserError(
                f"{taken} already exists, and both files would share one row of results; choose another name"
            )
    _try_reference(problem)
    try:
        text = _text(problem, stem, suffix)
    except operators.NotPlain as reason:
        raise UserError(
            f"{problem.path}: {reason}, which a plain .cu file does not support; omit --cu to get a Python file"
        ) from None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from None
    return path


def _try_reference(problem: Problem) -> None:
    """Runs the reference once, at the sizes for the emulated device. Raises UserError if it fails."""
    try:
        small = problem.on(emulated=True)
        with torch.no_grad():
            small.forward(small.model("cpu"), small.inputs(0))
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{problem.path}: the reference fails: {type(error).__name__}: {error}") from None


def _text(problem: Problem, name: str, suffix: str) -> str:
    """Returns the content of a new kernel file, by the template of its suffix.

    A copy of the problem's Model, or torch's C++ operators in a `.cu` file, computes the result, and one real kernel
    copies it. Raises operators.NotPlain if a `.cu` file cannot express the reference.
    """
    described = signature(problem)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"), undefined=jinja2.StrictUndefined,
        trim_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    values: dict[str, Any] = {"name": name, "element": described.element}
    if suffix == ".cu":
        values |= {
            "given": [*described.inputs, *described.state], "lines": operators.lines(problem, described),
            "outputs": described.outputs,
        }  # fmt: skip
    else:
        values |= {
            "inputs": described.inputs, "single": isinstance(described.output, torch.Tensor),
            "imports": model_source.imports(problem.source), "model": model_source.model(problem.source),
            "extension": re.sub(r"\W", "_", f"{problem.name}_{name}", flags=re.ASCII),
        }  # fmt: skip
    return environment.get_template(f"kernel{suffix}.jinja").render(values)


def _stem_and_suffix(name: str, cu: bool) -> tuple[str, str]:
    stem = re.sub(r"\.(?:py|cu)$", "", name)
    if not re.fullmatch(r"[^\W_](?:[\w -]*[\w-])?", stem) or stem in RESERVED:
        raise UserError(
            f"{name!r} is not a valid kernel name; use letters, digits, spaces, _ and -, such as 'tiled_64', with a "
            "letter or digit first and no space last; the names of baselines and of the control are reserved"
        )
    return stem, ".cu" if cu or name.endswith(".cu") else ".py"
