"""Kernels of many families in common styles: each gives torch's result under emulation, and nvcc compiles it."""

from __future__ import annotations

import shutil
from types import ModuleType

import pytest
import torch
from support import kernel_modules
from support.command import ROOT
from support.emulated_process import emulated, inside, load_inline  # noqa: F401 - a fixture
from support.nvcc_compile import toolkit_include

pytestmark = pytest.mark.slow

KERNELS = ROOT / "tests" / "emulator" / "kernels"
NAMES = sorted(path.stem for path in KERNELS.glob("*.py"))


def kernel(name: str) -> ModuleType:
    return kernel_modules.load(KERNELS / f"{name}.py")


@emulated
@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_gives_torch_s_answer(name):
    tested = kernel(name)
    functions = [name] if tested.CPP else None
    ops = load_inline(
        KERNELS / f"{name}.py", name=name, cpp_sources=tested.CPP, cuda_sources=tested.CUDA, functions=functions,
        extra_cuda_cflags=getattr(tested, "FLAGS", []),
    )  # fmt: skip
    kernel_modules.check(tested, ops)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
def test_nvcc_takes_the_same_sources(tmp_path):
    slim = not (toolkit_include() / "cublas_v2.h").exists()
    modules = [kernel(name) for name in NAMES if not (slim and "cublas" in name)]
    done = kernel_modules.compile_with_nvcc(modules, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no NVIDIA GPU on this machine")
@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_gives_the_same_answer(name, tmp_path):
    kernel_modules.check_on_gpu(kernel(name), tmp_path)
