"""Test modules with a CUDA kernel: CPP and CUDA sources, `cases()`, and the right answer `answer(*case)` by torch."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import torch
from torch.utils import cpp_extension

from cuda_on_cpu.compile import light_headers

from .nvcc_compile import compile_in, in_one_unit, nvcc_command, write_stand_ins


def load(path: Path) -> ModuleType:
    """The module in the file `path`. Its function has the file's name."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def together(modules: Mapping[str, ModuleType]) -> tuple[str, str]:
    """Declarations and CUDA source of all modules as one extension, each in its own namespace."""
    cpp = "".join(
        f"namespace of_{name} {{ {module.CPP} }}\nusing of_{name}::{name};\n" for name, module in modules.items()
    )
    return cpp, in_one_unit({name: module.CUDA for name, module in modules.items()})


def difference(tested: ModuleType, ops: ModuleType) -> str:
    """Why the function of the extension `ops` does not give the right answer; empty if it does."""
    try:
        check(tested, ops)
    except AssertionError as error:
        return str(error) or "the number or the device of the outputs differs"
    return ""


def check(tested: ModuleType, ops: ModuleType) -> None:
    """Fails unless the function of the extension `ops` gives the right answer in each case."""
    torch.manual_seed(0)
    for case in tested.cases():
        placed = [x.cuda() if hasattr(x, "cuda") else x for x in case]
        got = _tensors(getattr(ops, tested.__name__)(*placed))
        torch.cuda.synchronize()
        expected = _tensors(tested.answer(*case))
        assert len(got) == len(expected)
        for ours, theirs in zip(got, expected, strict=True):
            assert ours.is_cuda
            tolerance = getattr(tested, "TOLERANCE", {"rtol": 1e-4, "atol": 1e-4})
            torch.testing.assert_close(ours.cpu(), theirs, **tolerance)


def built_for_gpu(modules: Mapping[str, ModuleType], folder: Path) -> ModuleType:
    """The extension that torch builds in `folder` for the GPU, with the functions of all modules.

    A single module's sources stay as they are, so that they may bind their functions themselves.
    """
    if len(modules) == 1:
        ((name, module),) = modules.items()
        cpp, cuda, functions = module.CPP, module.CUDA, [name] if module.CPP else None
    else:
        name, functions = f"kernels_{'_'.join(list(modules)[:2])}", list(modules)
        cpp, cuda = together(modules)
    ops: ModuleType = cpp_extension.load_inline(
        name=name, cpp_sources=cpp, cuda_sources=cuda, functions=functions, build_directory=str(folder),
        extra_cuda_cflags=[flag for module in modules.values() for flag in getattr(module, "FLAGS", [])],
    )  # fmt: skip
    return ops


def compile_with_nvcc(modules: list[ModuleType], folder: Path) -> subprocess.CompletedProcess[str]:
    """Compiles all CUDA sources as one unit with nvcc, without two headers that take longer than the rest together.

    The light headers declare the operators of ATen/ATen.h that a source names. A reference to the function replaces a
    binding by pybind11.
    """
    write_stand_ins(folder / "stand_ins")
    source = in_one_unit({module.__name__: module.CUDA for module in modules}).replace("#include <ATen/ATen.h>\n", "")
    source = re.sub(r"^PYBIND11_MODULE\(.*?&(\w+).*?^\}", r"auto* bound = &\1;", source, flags=re.DOTALL | re.MULTILINE)
    light_headers.write_headers(folder / "light", source, binds_itself=False)
    includes = [word for name in ("light", "stand_ins") for word in ("-isystem", folder / name)]
    command = ["nvcc", *includes, *nvcc_command()[1:], "--expt-extended-lambda", "-Xptxas", "-O0"]
    return compile_in(folder, command, "kernels.cu", source)


def _tensors(value: object) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)  # type: ignore[call-overload]
