"""The files of a problem `relu` with a right and a wrong kernel."""

from __future__ import annotations

from pathlib import Path

from support import suites

_PROBLEM = suites.PROBLEM.format(factor=1)
KERNEL = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        {first}
        return x.clamp(min={least})
"""
RIGHT = KERNEL.format(first="", least=0)


def write(folder: Path) -> None:
    """Writes the problem and the kernels `right` and `wrong`, in `problems` and `kernels` below `folder`."""
    kernels = folder / "kernels" / "relu"
    for each in (folder / "problems", kernels):
        each.mkdir(parents=True, exist_ok=True)
    (folder / "problems" / "relu.py").write_text(_PROBLEM)
    (kernels / "right.py").write_text(RIGHT)
    (kernels / "wrong.py").write_text(KERNEL.format(first="", least=-1))
