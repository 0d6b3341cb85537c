"""The shipped kernels as candidates that share one extension, because most of a build's time is the same for each."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cuda_on_cpu.compile.sources import Sources
from kernel_harness.problem.candidate import Candidate

from .nvcc_compile import KERNELS, in_one_unit, load_kernel

PATHS = sorted(KERNELS.glob("*/*.py"))
_TOGETHER = '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CPP = r"""
{cpp}
"""
CUDA = r"""
{cuda}
"""
_shared = load_inline("shipped", CPP, CUDA, functions={functions!r}, no_implicit_headers=True)


class ops:
    {function} = _shared.{unit}


{model}'''


def candidate(path: Path, paths: Sequence[Path] = PATHS) -> Candidate:
    """The model class of a shipped kernel's file, with the file's function from the extension of all files `paths`."""
    text, unit, all_sources = path.read_text(), _unit(path), _sources(tuple(paths))
    return Candidate(path.stem, path, _TOGETHER.format(
        cpp=_cpp(all_sources),
        cuda=in_one_unit({unit: sources.cuda for unit, sources in all_sources.items()}),
        functions=list(all_sources),
        function=_function(all_sources[unit]), unit=unit, model=text[text.index("class ModelNew") :],
    ))  # fmt: skip


def _cpp(all_sources: Mapping[str, Sources]) -> str:
    """The C++ sources of all files, each in a namespace, and a function with the name of each file."""
    functions = "".join(
        f"at::Tensor {unit}(at::Tensor A, at::Tensor B) {{ return of_{unit}::{_function(sources)}(A, B); }}\n"
        for unit, sources in all_sources.items()
    )
    own_name = "#undef TORCH_EXTENSION_NAME\n#define TORCH_EXTENSION_NAME shipped\n"
    return f"{in_one_unit({unit: sources.cpp for unit, sources in all_sources.items()})}\n{own_name}{functions}"


@functools.cache
def _sources(paths: tuple[Path, ...]) -> dict[str, Sources]:
    """The arguments of each file's load_inline."""
    with pytest.MonkeyPatch.context() as patch:
        return {_unit(path): load_kernel(path.relative_to(KERNELS).as_posix(), patch)[1] for path in paths}


def _unit(path: Path) -> str:
    return f"{path.parent.name}_{path.stem}"


def _function(sources: Sources) -> str:
    (name,) = sources.functions or {}
    return name
