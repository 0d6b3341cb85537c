"""Kernels of further families in common styles, built together: each gives the right answer, and nvcc compiles it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from types import ModuleType

import pytest
import torch
from support import kernel_modules
from support.command import ROOT
from support.emulated_process import emulated, inside, load_inline  # noqa: F401 - a fixture
from support.nvcc_compile import in_one_unit, toolkit_include

pytestmark = pytest.mark.slow

FAMILIES = ROOT / "tests" / "emulator" / "families"
NAMES = sorted(path.stem for path in FAMILIES.glob("*.py"))
# Device-wide algorithms: their templates take nvcc minutes.
LIBRARIES = [name for name in NAMES if name.startswith(("cub_device", "thrust_"))]
RANDOM = ["philox_dropout", "random_streams", "xorwow_walk"]


def kernel(name: str) -> ModuleType:
    return kernel_modules.load(FAMILIES / f"{name}.py")


def together(modules: Mapping[str, ModuleType]) -> tuple[str, str]:
    """Declarations and CUDA source of all modules as one extension, each in its own namespace."""
    cpp = "".join(
        f"namespace of_{name} {{ {module.CPP} }}\nusing of_{name}::{name};\n" for name, module in modules.items()
    )
    return cpp, in_one_unit({name: module.CUDA for name, module in modules.items()})


# The kernels are built in two extensions, because most of a build's time does not depend on the source's length.
@emulated
@pytest.mark.parametrize("part", range(2))
def test_the_kernels_of_many_families_give_the_right_answers(part):
    modules = {name: kernel(name) for name in NAMES[part::2]}
    cpp, cuda = together(modules)
    ops = load_inline(
        FAMILIES / f"{NAMES[part]}.py", name=f"part_{part}", cpp_sources=cpp, cuda_sources=cuda, functions=list(modules)
    )
    wrong = {name: failure for name, module in modules.items() if (failure := difference(module, ops))}
    assert not wrong, "\n".join(f"{name}: {failure}" for name, failure in wrong.items())


def difference(module: ModuleType, ops: ModuleType) -> str:
    """Why a kernel's output is not the answer; empty if it is."""
    try:
        kernel_modules.check(module, ops)
    except AssertionError as error:
        return str(error) or "the number or the device of the outputs differs"
    return ""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
def test_nvcc_takes_the_same_sources(tmp_path):
    slim = not (toolkit_include() / "curand_kernel.h").exists()
    modules = [kernel(name) for name in NAMES if name not in LIBRARIES and not (slim and name in RANDOM)]
    done = kernel_modules.compile_with_nvcc(modules, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no NVIDIA GPU on this machine")
@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_gives_the_same_answer(name, tmp_path):
    kernel_modules.check_on_gpu(kernel(name), tmp_path)


UNSUPPORTED = {
    "the header thrust/merge.h": "#include <thrust/merge.h>",
    "merge": "#include <thrust/sort.h>\nvoid f(int* a) { thrust::merge(a, a, a, a, a); }",
    "an algorithm of thrust with these arguments": "#include <thrust/reduce.h>\n"
    "int f(int* a) { return thrust::reduce(a, a, 0, 1, 2, 3); }",
    "cub::DeviceReduce::Sum with these arguments": "#include <cub/cub.cuh>\n"
    "void f(int* a) { cub::DeviceReduce::Sum(a, a, 1); }",
    "cub::WarpReduce::Median": "#include <cub/cub.cuh>\n"
    "__global__ void f(cub::WarpReduce<int>::TempStorage s) { cub::WarpReduce<int>(s).Median(1); }",
    "curandStateMRG32k3a": "#include <curand_kernel.h>\n__global__ void f(curandStateMRG32k3a* state) {}",
    "tex2D": "__global__ void f(cudaTextureObject_t t, float* x) { *x = tex2D<float>(t, 0, 0); }",
    "the capture of a stream of torch": "#include <ATen/cuda/CUDAContext.h>\n#include <c10/cuda/CUDAGuard.h>\n"
    "void f(c10::cuda::CUDAStream s) { const c10::cuda::CUDAStreamGuard guard(s); "
    "cudaStreamBeginCapture(s.stream(), cudaStreamCaptureModeGlobal); }",
    "cudaGraphAddKernelNode": "void f(cudaGraph_t g) { cudaGraphAddKernelNode(0, g, 0, 0, 0); }",
}


@emulated
@pytest.mark.parametrize("construct", UNSUPPORTED)
def test_what_the_emulator_lacks_is_unsupported_by_name(construct):
    from kernel_harness.compile.errors import UnsupportedConstruct

    source = f"#include <torch/extension.h>\n{UNSUPPORTED[construct]}\n"
    with pytest.raises(UnsupportedConstruct) as caught:
        load_inline(FAMILIES / f"{NAMES[0]}.py", name="lacking", cpp_sources="", cuda_sources=source)
    assert caught.value.args[0].endswith(f": the emulation cannot run {construct}.")
