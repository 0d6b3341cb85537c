"""torch's headers cut down to what a source uses: parsing the rest is nearly all of a build's time.

A source that includes `torch/extension.h` gets one of the same name, found first, that holds tensors and the
operators the source names. What that leaves out (the C++ front end, autograd) fails to compile, and the caller
builds again with the real headers.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

import torch

# The names of torch/types.h that are more than at's.
_NUMBERS = {
    "UInt8": "Byte", "Int8": "Char", "Int16": "Short", "Int32": "Int", "Int64": "Long",
    "Float16": "Half", "Float32": "Float", "Float64": "Double",
    "U8": "Byte", "I8": "Char", "I16": "Short", "I32": "Int", "I64": "Long",
    "F16": "Half", "F32": "Float", "F64": "Double",
}  # fmt: skip

# Parts of torch that a source can use without an operator's name, and what shows that it does.
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
}

# What of torch's C++ interface is left out altogether.
_FRONT_END = re.compile(r"\btorch::(?:nn|autograd|jit|optim|data|serialize|save|load|special|fft|linalg)\b")
_BINDING = ("torch/csrc/utils/pybind.h", "torch/csrc/Exceptions.h")
_REPLACED = ("torch/extension.h", "torch/all.h", "torch/torch.h", "torch/types.h")


@functools.cache
def _operators() -> frozenset[str]:
    folder = Path(torch.__file__).parent / "include" / "ATen" / "ops"
    return frozenset(p.stem for p in folder.glob("*.h") if not p.stem.endswith(("_native", "_ops", "_dispatch")))


def unwanted() -> bool:
    """Whether `$KERNEL_HARNESS_HEADERS` is `full`: every build then takes torch's own headers, as load_inline does."""
    return os.environ.get("KERNEL_HARNESS_HEADERS") == "full"


def serves(source: str) -> bool:
    """Whether the light headers can be enough for a source."""
    return not unwanted() and not _FRONT_END.search(source)


def write_headers(folder: Path, source: str, *, binds_itself: bool) -> Path:
    """Puts light headers for a source into `folder`, to be searched before torch's own. The folder.

    Where load_inline is left to bind the functions, pybind11's headers become empty.
    """
    words = set(re.findall(r"\b(?:at|torch)::(\w+)\s*\(", source))
    includes = [header for pattern, header in _PARTS.items() if re.search(pattern, source)]
    includes += [f"ATen/ops/{word}.h" for word in sorted(words & _operators())]
    constants = [f"constexpr auto k{name} = at::k{own};" for name, own in _NUMBERS.items()]
    text = "\n".join(
        [
            "#pragma once",
            "#include <ATen/core/Tensor.h>",
            *(f"#include <{header}>" for header in includes),
            "#include <optional>",
            "namespace torch {",
            "using namespace at;",
            "using std::nullopt;",
            "using std::optional;",
            "using Dtype = at::ScalarType;",
            *constants,
            "}  // namespace torch",
            "",
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
