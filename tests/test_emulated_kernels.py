"""Kernels of many families, written as others write them: each gives torch's answer emulated, and nvcc takes it."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest
import torch
from emulated.inside import emulated, inside, load_inline  # noqa: F401 - a fixture
from test_kernels_nvcc import compile_in, nvcc_command, toolkit_include, write_stand_ins
from torch.utils import cpp_extension

from kernel_harness.build import light

KERNELS = Path(__file__).resolve().parent / "emulated" / "kernels"
NAMES = sorted(path.stem for path in KERNELS.glob("*.py"))
PARTS = 2  # translation units that nvcc reads all of them in


def kernel(name: str) -> ModuleType:
    """A file of the folder: CPP and CUDA sources, `cases()` and the `answer(*case)`."""
    spec = importlib.util.spec_from_file_location(name, KERNELS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tensors(value: object) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)  # type: ignore[call-overload]


@emulated
@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_gives_torch_s_answer(name):
    tested = kernel(name)
    functions = [name] if tested.CPP else None
    ops = load_inline(
        KERNELS / f"{name}.py", name=name, cpp_sources=tested.CPP, cuda_sources=tested.CUDA, functions=functions,
        extra_cuda_cflags=getattr(tested, "FLAGS", []),
    )  # fmt: skip
    check(tested, ops)


def check(tested: ModuleType, ops: ModuleType) -> None:
    torch.manual_seed(0)
    name = tested.__name__
    for case in tested.cases():
        placed = [x.cuda() if hasattr(x, "cuda") else x for x in case]
        got = tensors(getattr(ops, name)(*placed))
        torch.cuda.synchronize()
        expected = tensors(tested.answer(*case))
        assert len(got) == len(expected)
        for ours, theirs in zip(got, expected, strict=True):
            assert ours.is_cuda
            tolerance = getattr(tested, "TOLERANCE", {"rtol": 1e-4, "atol": 1e-4})
            torch.testing.assert_close(ours.cpu(), theirs, **tolerance)


def in_one_unit(names: list[str]) -> str:
    """The sources of several kernels as one, each in a namespace of its own: torch's headers are read once for all."""
    includes, parts = [], []
    for name in names:
        lines = kernel(name).CUDA.split("\n")
        includes += [line for line in lines if line.startswith("#include")]
        body = [line for line in lines if not line.startswith("#include")]
        macros = {match[1] for line in body if (match := re.match(r"#define (\w+)", line))}
        parts += [
            f"#undef TORCH_EXTENSION_NAME\n#define TORCH_EXTENSION_NAME {name}\nnamespace of_{name} {{",
            *body,
            "}",
        ]
        parts += [f"#undef {macro}" for macro in sorted(macros)]
    return "\n".join([*dict.fromkeys(includes), *parts])


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
@pytest.mark.parametrize("part", range(PARTS))
def test_nvcc_takes_the_same_sources(part, tmp_path):
    write_stand_ins(tmp_path / "stand_ins")
    slim = not (toolkit_include() / "cublas_v2.h").exists()
    names = [name for name in NAMES[part::PARTS] if not (slim and "cublas" in name)]
    source = in_one_unit(names)
    light.write_headers(tmp_path / "light", source, binds_itself=True)
    includes = [word for folder in ("light", "stand_ins") for word in ("-isystem", tmp_path / folder)]
    command = ["nvcc", *includes, *nvcc_command()[1:], "--expt-extended-lambda", "-Xptxas", "-O0"]
    done = compile_in(tmp_path, command, "kernels.cu", source)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no NVIDIA GPU on this machine")
@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_gives_the_same_answer(name, tmp_path):
    tested = kernel(name)
    ops = cpp_extension.load_inline(
        name=name, cpp_sources=tested.CPP, cuda_sources=tested.CUDA, functions=[name] if tested.CPP else None,
        extra_cuda_cflags=getattr(tested, "FLAGS", []), build_directory=str(tmp_path),
    )  # fmt: skip
    check(tested, ops)
