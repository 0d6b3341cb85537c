"""Writes light headers: short versions of torch's headers with only the parts that a source uses.

Parsing torch's full headers takes nearly all of a build's time. If a source includes `torch/extension.h`, the compiler
finds the light header of this name first. A light header declares tensors and the operators that the source names. It
leaves out the C++ front end and autograd.

A light header may be the reason why a build fails. So `with_fallback` builds again with torch's own headers before any
error is reported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import torch

from cuda_on_cpu.compile.cuda_source import includes_any
from cuda_on_cpu.compile.errors import BuildFailed
from cuda_on_cpu.compile.sources import Sources
from cuda_on_cpu.core import names

_T = TypeVar("_T")

# Its text is part of each light header, so that the header compiles wherever it is copied to.
_NAMES = Path(__file__).parent / "native" / "cuda_on_cpu" / "torch_names.h"

# Maps a pattern of names in a source to the header that declares these names.
_PARTS = {
    r"\bAT_DISPATCH_\w+": "ATen/Dispatch.h",
    r"\bparallel_for\b": "ATen/Parallel.h",
    r"\bindexing::": "ATen/TensorIndexing.h",
    r"\bAccumulateType\b|\bacc_type\b": "ATen/AccumulateType.h",
    r"\bOpMathType\b|\bopmath_type\b": "ATen/OpMathType.h",
    r"\bNoGradGuard\b|\bGradMode\b": "c10/core/GradMode.h",
    r"\bglobalContext\b": "ATen/Context.h",
    r"\bPYBIND11_\w+|\bpy(?:bind11)?::": "torch/csrc/utils/pybind.h",
    r"\bwrap_pybind_function\b": "torch/csrc/Exceptions.h",
    r"\bTORCH_LIBRARY\w*": "torch/library.h",
}

# Names of torch's C++ front end, which no light header declares.
_FRONT_END = re.compile(r"\btorch::(?:nn|autograd|jit|optim|data|serialize|save|load|special|fft|linalg)\b")
# Names that torch/types.h declares in namespace `torch`. The light headers take them from namespace `at`, where they
# mean something else: torch::tensor({1.0}) is float, at::tensor({1.0}) is double, and the functions in `at`
# ignore requires_grad. Without an argument, `x.requires_grad()` asks a tensor, and means the same in both.
_OTHER_MEANING = re.compile(r"\btensor\s*\(|::\s*requires_grad\b|\brequires_grad\s*\((?!\s*(?:false\s*)?\))")
_INCLUDES_TORCH = re.compile(r"[<\"](?:torch|ATen|c10|pybind11)/")
_BINDING = ("torch/csrc/utils/pybind.h", "torch/csrc/Exceptions.h")
_REPLACED = ("torch/extension.h", "torch/all.h", "torch/torch.h", "torch/types.h")


def headers_of_operators(words: Iterable[str]) -> list[str]:
    """Returns the header of each operator of torch among `words`, such as `ATen/ops/relu.h`, in alphabetical order."""
    folder = Path(torch.__file__).parent / "include"
    names = sorted(word for word in set(words) if not word.endswith(("_native", "_ops", "_dispatch")))
    return [header for header in (f"ATen/ops/{name}.h" for name in names) if (folder / header).exists()]


def unwanted() -> bool:
    """Returns whether the user has switched light headers off: the variable `HEADERS` (`names`) is `full`.

    Builds then use only torch's own headers.
    """
    return os.environ.get(names.variable("HEADERS")) == "full"


def serve(source: str) -> bool:
    """Returns whether to try light headers for the C++ or CUDA code `source`.

    This is false if the user has switched them off, if `source` uses torch's C++ front end, such as `torch::nn`, or if
    a part of `source` could have another meaning with light headers (`keep_meaning`).
    """
    return not unwanted() and not _FRONT_END.search(source) and keep_meaning(source)


def replace_headers_of(sources: Sources) -> bool:
    """Returns whether the CUDA source includes headers of torch, itself or because load_inline puts them first."""
    return sources.implicit_headers or includes_any(_INCLUDES_TORCH, sources.cuda)


def keep_meaning(source: str) -> bool:
    """Returns false if the code `source` may mean something else with light headers, although it compiles with them.

    That is so if it calls a function `tensor` or sets `requires_grad`.
    """
    return not _OTHER_MEANING.search(source)


def with_fallback(light: Callable[[], _T], full: Callable[[], _T]) -> _T:
    """Returns the result of `light`, a build with light headers. If it raises BuildFailed, returns that of `full`.

    `full` is the same build with torch's own headers. A BuildFailed of `light` is dropped, whatever its message, unless
    its `final` is true. Other exceptions of `light`, and all of `full`, are passed on. If light headers are switched
    off, only `full` runs.
    """
    if not unwanted():
        try:
            return light()
        except BuildFailed as failure:
            if failure.final:
                raise
    return full()


def write_headers(folder: Path, source: str, *, binds_itself: bool) -> Path:
    """Writes the light headers for `source` into `folder`, and returns `folder`.

    The compiler must search this folder before torch's own headers. `binds_itself` says whether `source` defines its
    own Python bindings. If not, torch's headers for bindings, which include pybind11, are replaced by empty headers.
    """
    words = re.findall(r"\b(?:at|torch)::(\w+)\s*\(", source)
    includes = [header for pattern, header in _PARTS.items() if re.search(pattern, source)]
    includes += headers_of_operators(words)
    text = "\n".join(
        [
            "#pragma once",
            "#include <ATen/core/Tensor.h>",
            "#include <torch/version.h>",
            # Declares operators such as `x + 1`. Without the macro, the header includes every operator of torch.
            "#define AT_PER_OPERATOR_HEADERS",
            "#include <ATen/TensorOperators.h>",
            "#undef AT_PER_OPERATOR_HEADERS",
            *(f"#include <{header}>" for header in includes),
            _NAMES.read_text(),
        ]
    )
    for name in () if binds_itself else _BINDING:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#pragma once\n")
    for name in _REPLACED:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if name == _REPLACED[0] else f"#pragma once\n#include <{_REPLACED[0]}>\n")
    return folder
