"""Kernels of further families in common styles, built together: each gives the right answer, and nvcc compiles it."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Mapping
from types import ModuleType

import pytest
import torch
from support.command import ROOT
from support.emulated_process import emulated, inside, load_inline  # noqa: F401 - a fixture
from support.nvcc_compile import compile_in, in_one_unit, nvcc_command, toolkit_include, write_stand_ins
from torch.utils import cpp_extension

from kernel_harness.compile import light_headers

pytestmark = pytest.mark.slow

FAMILIES = ROOT / "tests" / "emulator" / "families"
NAMES = sorted(path.stem for path in FAMILIES.glob("*.py"))
# Device-wide algorithms: their templates take nvcc minutes.
LIBRARIES = [name for name in NAMES if name.startswith(("cub_device", "thrust_"))]
RANDOM = ["philox_dropout", "random_streams", "xorwow_walk"]


def kernel(name: str) -> ModuleType:
    """A module of the folder `families`, with CPP and CUDA sources, `cases()` and `answer(*case)`."""
    spec = importlib.util.spec_from_file_location(name, FAMILIES / f"{name}.py")
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


def tensors(value: object) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)  # type: ignore[call-overload]


def difference(module: ModuleType, ops: ModuleType) -> str:
    """Why a kernel's output is not the answer; empty if it is."""
    torch.manual_seed(0)
    for case in module.cases():
        placed = [x.cuda() if hasattr(x, "cuda") else x for x in case]
        got = tensors(getattr(ops, module.__name__)(*placed))
        torch.cuda.synchronize()
        expected = tensors(module.answer(*case))
        tolerance = getattr(module, "TOLERANCE", {"rtol": 1e-4, "atol": 1e-4})
        try:
            assert [x.is_cuda for x in got] == [True] * len(expected)
            for ours, theirs in zip(got, expected, strict=True):
                torch.testing.assert_close(ours.cpu(), theirs, **tolerance)
        except AssertionError as error:
            return str(error)
    return ""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
def test_nvcc_takes_the_same_sources(tmp_path):
    write_stand_ins(tmp_path / "stand_ins")
    slim = not (toolkit_include() / "curand_kernel.h").exists()
    modules = {name: kernel(name) for name in NAMES if name not in LIBRARIES and not (slim and name in RANDOM)}
    source = in_one_unit({name: module.CUDA for name, module in modules.items()})
    light_headers.write_headers(tmp_path / "light", source, binds_itself=True)
    includes = [word for folder in ("light", "stand_ins") for word in ("-isystem", tmp_path / folder)]
    quick = ["-Xptxas", "-O0", "--cuda"]  # as in test_emulated_kernels
    command = ["nvcc", *includes, *nvcc_command()[1:-1], "--expt-extended-lambda", *quick]
    done = compile_in(tmp_path, command, "kernels.cu", source)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no NVIDIA GPU on this machine")
@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_gives_the_same_answer(name, tmp_path):
    module = kernel(name)
    ops = cpp_extension.load_inline(
        name=name, cpp_sources=module.CPP, cuda_sources=module.CUDA, functions=[name],
        extra_cuda_cflags=getattr(module, "FLAGS", []), build_directory=str(tmp_path),
    )  # fmt: skip
    assert not difference(module, ops)


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
