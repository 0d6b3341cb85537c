"""The planted bugs: kernels of tests/emulator/planted with one mistake each; its kind and line stand in the file."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from support.command import ROOT

from kernel_harness.problem.candidate import Candidate, read

PLANTED = ROOT / "tests" / "emulator" / "planted"


@dataclass(frozen=True)
class Bug:
    """One of them."""

    path: Path

    @property
    def name(self) -> str:
        """`elements/off_by_one_read`."""
        return self.path.relative_to(PLANTED).with_suffix("").as_posix()

    @property
    def problem(self) -> Path:
        """The file of the problem that the kernel would solve."""
        return PLANTED / "problems" / f"{self.path.parent.name}.py"

    @cached_property
    def kind(self) -> str:
        """As the emulator's sanitizer calls it."""
        return next(re.match(r"// Kind: (.*)", line)[1] for line in self._lines if line.startswith("// Kind:"))

    @cached_property
    def line(self) -> int:
        """Where it is."""
        (marked,) = (i for i, line in enumerate(self._lines, 1) if line.endswith("// BUG"))
        return marked

    @property
    def candidate(self) -> Candidate:
        """The candidate with the kernels of all bugs of the problem, which calls this one's, or this one's alone."""
        if _ALONE in self.path.read_text():
            return read(self.path)
        text = _together(self.path.parent) + _CALLS.format(self.path.stem)
        return Candidate(self.path.parent.name, self.path.with_suffix(".py"), text)

    @property
    def line_of_candidate(self) -> int:
        """Where it is in the candidate's file."""
        lines = self.candidate.source.split("\n")
        begin = _begin(self.path.stem)
        return self.line + (lines.index(begin) + 1 if begin in lines else 0)

    @cached_property
    def _lines(self) -> list[str]:
        return self.path.read_text().split("\n")


# A kernel file without a mistake that declines shapes. `condition` says which, in Python.
DECLINES = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, y):
        if {condition}:
            raise NotImplementedError("this length is not supported")
        return x + 2 * y
"""

ALL = [Bug(path) for path in sorted(PLANTED.glob("*/*.cu"))]

# The kernels of one problem are built together, because most of a build's time does not depend on the source's length.
# The compiler may not inline an atomic operation that a source has several times. A finding in it then has the line of
# the launch, so a kernel with one is built alone.
_ALONE = "atomicAdd"
_TOGETHER = '''
import torch
from torch.utils.cpp_extension import load_inline

CPP = r"""
{cpp}
"""
CUDA = r"""
{cuda}
"""
kernels = load_inline(name="{name}", cpp_sources=CPP, cuda_sources=CUDA, functions={functions})
'''
_CALLS = """

class ModelNew(torch.nn.Module):
    def forward(self, *inputs):
        return kernels.{}(*inputs)
"""
_FORWARD = re.compile(r"^torch::Tensor forward\((.*)\) {", re.MULTILINE)


def _begin(stem: str) -> str:
    return f"namespace of_{stem} {{"


@functools.cache
def _together(folder: Path) -> str:
    """A Python module with the kernels of a folder. Each is in a namespace, and its `forward` has the file's name."""
    sources = {path.stem: path.read_text() for path in sorted(folder.glob("*.cu"))}
    sources = {stem: text for stem, text in sources.items() if _ALONE not in text}
    declarations, parts = [], []
    for stem, text in sources.items():
        parameters = _FORWARD.search(text)[1]
        names = ", ".join(parameter.split()[-1] for parameter in parameters.split(", "))
        declarations.append(f"torch::Tensor {stem}({parameters});")
        call = f"torch::Tensor {stem}({parameters}) {{ return of_{stem}::forward({names}); }}"
        parts += [_begin(stem), text, "}", call]
    cpp, cuda = "\n".join(declarations), "\n".join(parts)
    return _TOGETHER.format(cpp=cpp, cuda=cuda, name=folder.name, functions=list(sources))
