"""Kernels of many families in common styles, built together: each gives the right answer, and nvcc compiles it."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType

import pytest
import torch
from support import kernel_modules
from support.command import ROOT
from support.emulated_process import emulated, inside, load_inline  # noqa: F401 - a fixture
from support.nvcc_compile import toolkit_include

pytestmark = pytest.mark.slow

FOLDERS = [ROOT / "tests" / "emulator" / name for name in ("kernels", "families")]
PATHS = {path.stem: path for folder in FOLDERS for path in sorted(folder.glob("*.py"))}
# Device-wide algorithms: their templates take nvcc minutes.
LIBRARIES = [name for name in PATHS if name.startswith(("cub_device", "thrust_"))]
RANDOM = ["philox_dropout", "random_streams", "xorwow_walk"]
BINDS_ITSELF = "leaky_relu_dispatch"
TOGETHER = sorted(PATHS.keys() - {BINDS_ITSELF})


def kernel(name: str) -> ModuleType:
    return kernel_modules.load(PATHS[name])


# The kernels are built as one extension, because most of a build's time does not depend on the source's length.
@emulated
def test_the_kernels_of_many_families_give_the_right_answers():
    modules = {name: kernel(name) for name in TOGETHER}
    cpp, cuda = kernel_modules.together(modules)
    ops = load_inline(
        PATHS[TOGETHER[0]], name="families", cpp_sources=cpp, cuda_sources=cuda, functions=list(modules),
        extra_cuda_cflags=[flag for module in modules.values() for flag in getattr(module, "FLAGS", [])],
    )  # fmt: skip
    wrong = {name: why for name, module in modules.items() if (why := kernel_modules.difference(module, ops))}
    assert not wrong, "\n".join(f"{name}: {why}" for name, why in wrong.items())


@emulated
def test_a_kernel_with_templates_and_bindings_of_its_own_gives_the_right_answer():
    module = kernel(BINDS_ITSELF)
    kernel_modules.check(
        module, load_inline(PATHS[BINDS_ITSELF], name=BINDS_ITSELF, cpp_sources="", cuda_sources=module.CUDA)
    )


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
def test_nvcc_takes_the_same_sources(tmp_path):
    include = toolkit_include()
    missing = [*RANDOM] if not (include / "curand_kernel.h").exists() else []
    missing += [name for name in PATHS if "cublas" in name and not (include / "cublas_v2.h").exists()]
    modules = [kernel(name) for name in PATHS if name not in [*LIBRARIES, *missing]]
    done = kernel_modules.compile_with_nvcc(modules, tmp_path)
    assert done.returncode == 0, done.stderr


on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no NVIDIA GPU on this machine"),
]
ALONE = [*LIBRARIES, BINDS_ITSELF, *(name for name in TOGETHER if hasattr(kernel(name), "FLAGS"))]
PARTS = 12


@pytest.mark.parametrize("name", [pytest.param(name, marks=on_gpu) for name in ALONE])
def test_a_gpu_gives_the_same_answer(name, tmp_path):
    module = kernel(name)
    kernel_modules.check(module, kernel_modules.built_for_gpu({name: module}, tmp_path))


@pytest.mark.parametrize("part", [pytest.param(part, marks=on_gpu) for part in range(PARTS)])
def test_a_gpu_gives_the_same_answers(part, tmp_path):
    modules = {name: kernel(name) for name in [n for n in TOGETHER if n not in ALONE][part::PARTS]}
    ops = kernel_modules.built_for_gpu(modules, tmp_path)
    wrong = {name: why for name, module in modules.items() if (why := kernel_modules.difference(module, ops))}
    assert not wrong, "\n".join(f"{name}: {why}" for name, why in wrong.items())


UNSUPPORTED = {
    "cusparseHandle_t of the header cusparse.h": "#include <cusparse.h>\nvoid f() { cusparseHandle_t handle; }",
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
    "cudaGraphAddMemAllocNode": "void f(cudaGraph_t g) { cudaGraphAddMemAllocNode(0, g, 0, 0, 0); }",
}


@emulated
@pytest.mark.parametrize("construct", UNSUPPORTED)
def test_what_the_emulator_lacks_is_unsupported_by_name(construct):
    from cuda_on_cpu.compile.errors import UnsupportedConstruct
    from cuda_on_cpu.emulator.unsupported import reports_in

    source = f"#include <torch/extension.h>\nint one() {{ return 1; }}\n{UNSUPPORTED[construct]}\n"
    try:
        built = load_inline(
            PATHS[TOGETHER[0]], name="lacking", cpp_sources="int one();", cuda_sources=source, functions=["one"]
        )
    except UnsupportedConstruct as refusal:  # in the head of a function
        sentences = [str(refusal)]
    else:
        sentences = reports_in(Path(built.__file__))
    assert [sentence.endswith(f": the emulation cannot run {construct}.") for sentence in sentences] == [True]
