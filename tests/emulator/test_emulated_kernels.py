"""Kernels of many families in common styles: each gives torch's result under emulation, and nvcc compiles it."""

from __future__ import annotations

import importlib.util
import shutil
from types import ModuleType

import pytest
import torch
from support.command import ROOT
from support.emulated_process import emulated, inside, load_inline  # noqa: F401 - a fixture
from support.nvcc_compile import compile_in, in_one_unit, nvcc_command, toolkit_include, write_stand_ins
from torch.utils import cpp_extension

from kernel_harness.compile import light_headers

pytestmark = pytest.mark.slow

KERNELS = ROOT / "tests" / "emulator" / "kernels"
NAMES = sorted(path.stem for path in KERNELS.glob("*.py"))


def kernel(name: str) -> ModuleType:
    """A module of the folder `kernels`, with CPP and CUDA sources, `cases()` and `answer(*case)`."""
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


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
def test_nvcc_takes_the_same_sources(tmp_path):
    write_stand_ins(tmp_path / "stand_ins")
    slim = not (toolkit_include() / "cublas_v2.h").exists()
    names = [name for name in NAMES if not (slim and "cublas" in name)]
    source = in_one_unit({name: kernel(name).CUDA for name in names})
    light_headers.write_headers(tmp_path / "light", source, binds_itself=True)
    includes = [word for folder in ("light", "stand_ins") for word in ("-isystem", tmp_path / folder)]
    # nvcc has parsed the host code twice before the host compiler reads it a third time, so that step is left out: the
    # output of --cuda is what the host compiler would get.
    quick = ["-Xptxas", "-O0", "--cuda"]
    command = ["nvcc", *includes, *nvcc_command()[1:-1], "--expt-extended-lambda", *quick]
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
