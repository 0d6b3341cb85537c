"""CUDA's language under emulation: constructs run as on a GPU, and sources that nvcc rejects are rejected."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest
import torch
from support.emulated_process import emulated, extension, inside, load_inline  # noqa: F401 - a fixture

from cuda_on_cpu.compile.errors import BuildFailed, ExtensionNotBuilt, NoCompiler, UnsupportedConstruct
from cuda_on_cpu.compile.sources import Sources
from cuda_on_cpu.emulator.unsupported import reports_in
from kernel_harness.compile import nvcc, strict


def language() -> ModuleType:
    return extension("language", extra_cuda_cflags=["--expt-extended-lambda"])


@emulated
@pytest.mark.parametrize("n", [2, 33])
def test_dynamic_shared_memory_has_any_type_and_as_many_names_as_wanted(n):
    for out in language().dynamic_of_many_types(n):
        assert out.tolist() == [77, *range(n - 2, -1, -1)]


@emulated
def test_static_arrays_of_every_kind_lie_beside_dynamic_memory():
    i = torch.arange(32)
    expected = (31 - i) - (31 - i) + i % 2 + 0.5 + 100
    assert torch.equal(language().shared_of_every_kind().cpu(), expected)


@emulated
@pytest.mark.parametrize("how", range(11))
def test_a_launch_may_be_written_in_every_way_cuda_has(how):
    x = torch.randn(64)
    expected = {3: 4 * x, 4: -4 * x}.get(how, x + 3)
    assert torch.equal(language().launches(x.cuda(), how).cpu(), expected)


@emulated
@pytest.mark.parametrize("how", range(4))
def test_arguments_convert_to_the_parameters_of_the_kernel(how):
    x = torch.randn(32)
    expected = [3 * x + 0.5, 2 * x + 4.5, 3 * x + 4.25, 3 * x + x[0]][how]
    torch.testing.assert_close(language().converted(x.cuda(), how).cpu(), expected)


@emulated
def test_constants_recursion_lambdas_and_members_work_in_kernels():
    assert language().device_functions().tolist() == [n + 9 + 110 + 32 for n in (10, 20, 30)]


@emulated
@pytest.mark.parametrize("n", [1, 127, 128, 200])
def test_threads_may_return_before_a_barrier_that_others_reach(n):
    x = torch.randn(n)
    expected = torch.cat([part.flip(0) for part in x.split(128)])
    assert torch.equal(language().reversed_in_blocks(x.cuda()).cpu(), expected)


# --------------------------------------------------------------------- compile errors and their messages


def build(cuda: str, **keywords: object) -> ModuleType:
    """A source of CUDA without torch, whose unit includes no header of torch and is compiled once.

    The first line of the source is line 1 of kernel.cu. The flag keeps the halves in units of their own.
    """
    file = Path("kernel.cu")
    file.write_text(cuda)
    flags = ["-DIN_A_UNIT_OF_ITS_OWN", *keywords.pop("extra_cuda_cflags", [])]
    return load_inline(
        file, name="built", cpp_sources="void run();", cuda_sources=cuda, functions=["run"], extra_cuda_cflags=flags,
        no_implicit_headers=True, **keywords,
    )  # fmt: skip


def failure(cuda: str, kind: type[Exception] = ExtensionNotBuilt) -> str:
    """The message of a build that fails."""
    with pytest.raises(kind) as caught:
        build(cuda)
    assert type(caught.value) is kind
    return str(caught.value)


# Each line of a source that the emulation lacks something for, and the name of that in the message.
CALLS = {
    "cudaGraph_t graph; cudaGraphDebugDotPrint(graph, 0, 0);": "cudaGraphDebugDotPrint",
    "cudaMemRangeGetAttribute(nullptr, 0, 0, 0);": "cudaMemRangeGetAttribute",
    "CUcontext context;": "CUcontext",
}
DEVICE_FUNCTIONS = {
    "using Ranks = cub::BlockRadixRank<32, 4, false>;": "BlockRadixRank",
    "cub::Traits<float>::UnsignedBits bits;": "Traits",
    "out[0] = __vnegss2(1);": "__vnegss2",
}
# The rewriting does not know where these begin.
CLUSTERS = ["#define PAIRS __cluster_dims__(2, 1, 1)", "__global__ void PAIRS first(int* out) { *out = 1; }"]


# In one source, because most of a compilation's time does not depend on its length.
@emulated
@pytest.mark.slow
def test_calls_and_device_functions_that_the_emulation_lacks_are_named_where_they_would_run():
    lines = [
        *("#include <cuda_runtime.h>", "#include <cuda_fp16.h>", "#include <cooperative_groups.h>"),
        *("#include <cub/cub.cuh>", "void run() {}"),
        *(f"void call{i}() {{ {line} }}" for i, line in enumerate(CALLS)),
        *(f"__global__ void k{i}(int* out) {{ {line} }}" for i, line in enumerate(DEVICE_FUNCTIONS)),
    ]
    library = Path(build("\n".join(lines)).__file__)
    lacking = [*CALLS.values(), *DEVICE_FUNCTIONS.values()]
    wanted = [f"built.cuda_sources:{i}: the emulation cannot run {name}" for i, name in enumerate(lacking, 6)]
    found = {sentence.removesuffix(".").removesuffix(" with these arguments") for sentence in reports_in(library)}
    assert {each.replace("cub::", "").replace("cooperative_groups::", "") for each in found} == set(wanted)


@emulated
@pytest.mark.slow
def test_an_attribute_of_clusters_in_a_macro_is_unsupported_and_named():
    said = failure("\n".join(["#include <cuda_runtime.h>", "void run() {}", *CLUSTERS]), UnsupportedConstruct)
    assert said == "kernel.cu:3: the emulation cannot run __cluster_dims__."


@emulated
@pytest.mark.slow
def test_a_header_of_torch_that_the_emulation_cannot_compile_is_unsupported_and_named():
    source = "#include <ATen/ATen.h>\n#include <ATen/cuda/CUDAApplyUtils.cuh>\nvoid run() {}\n"
    said = failure(source, UnsupportedConstruct)
    assert said == "kernel.cu:2: the emulation cannot run the header ATen/cuda/CUDAApplyUtils.cuh."


@emulated
@pytest.mark.parametrize("line", ["cudaMaloc(nullptr, 0);", "__syncthread();", "unknown_function();"])
@pytest.mark.slow
def test_a_name_that_cuda_lacks_too_is_the_author_s_error(line):
    assert failure(f"\nvoid run() {{\n  {line}\n}}\n").startswith("kernel.cu:3: error: ")


def errors(lines: list[str], header: str) -> dict[int, str]:
    """The first error of g++ in each line, by its number, for a kernel with these lines from line 3 on."""
    source = "\n".join([f"#include <{header}>", "__global__ void k() {", *(f"{{ {line} }}" for line in lines), "}"])
    with pytest.raises(BuildFailed) as caught:
        build(f"{source}\nvoid run() {{}}\n")
    found = re.findall(r"^kernel\.cu:(\d+):\d+: error: (.*)", caught.value.log, re.MULTILINE)
    return {int(number): text for number, text in reversed(found)}


@emulated
@pytest.mark.slow
def test_what_cuda_13_took_out_of_cub_is_not_there():
    names = ["Sum", "Max", "Min", "Int2Type<1>", "TransformInputIterator<int, int, int*>"]
    found = errors([f"cub::{name} gone;" for name in names], "cub/cub.cuh")
    assert found == {  # the first error of each line
        number: f"'{name.split('<')[0]}' is not a member of 'cub'" for number, name in enumerate(names, 3)
    }


@emulated
@pytest.mark.slow
def test_what_nvcc_refuses_is_refused():
    lines = [
        "long x = 0; atomicAdd(&x, 1L);",  # CUDA has no such overload
        "short x = 0; atomicAdd(&x, x);",
        "long n = 4; int m = min(1, n);",  # ambiguous
        "__half h = 1.0f;",  # torch's flags disable half's conversions
        "__half h; h = h + h;",
    ]
    assert errors(lines, "cuda_fp16.h").keys() == set(range(3, 3 + len(lines)))


@emulated
@pytest.mark.parametrize("size", [32764, 32765])
@pytest.mark.slow
def test_more_parameters_of_a_kernel_than_nvcc_allows_are_refused_at_the_launch(size):
    source = f"""
struct Big {{ char a[{size}]; }};
__global__ void k(Big big, char* out) {{ if (out) *out = big.a[3]; }}
void run() {{
  k<<<1, 32>>>(Big(), nullptr);
}}
"""
    if size == 32764:
        build(source).run()
    else:
        said = failure(source)
        assert said.startswith("kernel.cu:5: ")
        assert "the parameters of a kernel can have 32764 bytes at most" in said


@emulated
@pytest.mark.slow
def test_half_s_operators_come_back_with_the_flags_that_others_use():
    source = "#include <cuda_fp16.h>\n__global__ void k(__half* h) { *h = *h + __half(1.0f); }\nvoid run() {}\n"
    build(source, extra_cuda_cflags=["-U__CUDA_NO_HALF_OPERATORS__", "-U__CUDA_NO_HALF_CONVERSIONS__"]).run()


@emulated
@pytest.mark.parametrize("rows", [96, 97])
@pytest.mark.slow
def test_static_shared_memory_past_48_kib_is_refused_as_by_nvcc(rows):
    source = f"""
__global__ void k(float* out) {{
  __shared__ float first[64][64];
  __shared__ float tile[{rows - 32}][128];
  first[0][threadIdx.x] = out[0]; tile[1][threadIdx.x] = out[1];
  __syncthreads();
  out[0] = first[0][31 - threadIdx.x] + tile[1][31 - threadIdx.x];
}}
void run() {{ k<<<1, 32>>>(nullptr); }}
"""
    if rows == 96:
        build(source)
    else:
        said = failure(source)
        assert "k(float*) uses too much shared memory (49664 bytes, at most 49152)" in said
        assert said.startswith(("kernel.cu:3: ", "kernel.cu:4: "))


@emulated
def test_a_launch_that_is_not_balanced_is_named_at_the_author_s_line():
    source = "__global__ void k(float* x) {}\nvoid run() {\n  k<<<1, 2(nullptr);\n}\n"
    assert failure(source) == "kernel.cu:3: error: the '<<<' of this launch has no matching '>>>'"


# ------------------------------------------------------------------------------------------------- --strict

# Without headers of torch in the CUDA source, nvcc takes seconds instead of minutes.
KERNEL = """
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r'''
#include <cuda_runtime.h>
struct Host { float zero() const { return 0; } };
__global__ void product(const float* a, const float* b, float* c, int M, int K, int N) {
    const int row = blockIdx.y, col = blockIdx.x;
    float sum = 0;
    for (int k = 0; k < K; ++k) sum += a[k * M + row] * b[col * K + k];
    c[row * N + col] = sum;
    HERE
}
void launch(const float* a, const float* b, float* c, int M, int K, int N) {
    product<<<dim3(N, M), 1>>>(a, b, c, M, K, N);
}
'''
CPP = r'''
#include <torch/extension.h>
void launch(const float*, const float*, float*, int, int, int);
torch::Tensor forward(torch::Tensor a, torch::Tensor b) {
    auto c = torch::empty({a.size(1), b.size(0)}, a.options());
    launch(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), a.size(1), a.size(0), b.size(0));
    return c;
}
'''
built = load_inline("host_call", CPP, CUDA, functions=["forward"], no_implicit_headers=True)

class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return built.forward(A, B)
"""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
@pytest.mark.slow
def test_strict_refuses_what_only_the_emulation_takes(typed, tmp_path):
    # A kernel that calls a member of the host: the emulation cannot distinguish it from one of the device.
    (tmp_path / "host_call.py").write_text(KERNEL.replace("HERE", "c[row * N + col] += Host().zero();"))
    words = ["--problem", "matmul_tt", "--device", "cpu", "--shape", "M=5,K=7,N=3", "--rounds", "1", "--json"]
    words += ["--results", tmp_path / "results", "--kernel", tmp_path / "host_call.py"]
    loose = typed(*words).results
    strict = typed(*words, "--strict", "--kernel", "naive").results
    assert loose["host_call"]["status"] == "PASSED"
    assert strict["naive"]["status"] == "PASSED"
    assert strict["host_call"]["status"] == "BUILD_ERROR"
    assert "host_call.py:13: error: calling a __host__ function" in strict["host_call"]["reason"]
    assert "--strict" in strict["host_call"]["reproduce"]


@pytest.mark.parametrize(
    ("code", "log", "kind"),
    [
        ("#include <curand.h>", "kernel.cu:1:10: fatal error: curand.h: No such file", NoCompiler),
        ("cublasSgemm(0);", 'kernel.cu(1): error: identifier "cublasSgemm" is undefined', NoCompiler),
        ("// cublasSgemm\nx;", 'kernel.cu(2): error: identifier "x" is undefined', BuildFailed),
        ('#include "forgotten.h"', "kernel.cu:1:10: fatal error: forgotten.h: No such file", BuildFailed),
    ],
)
def test_strict_does_not_blame_a_source_for_a_header_that_the_toolkit_lacks(code, log, kind, tmp_path, monkeypatch):
    # A toolkit without libraries, whose nvcc only prints the errors of the real one.
    (tmp_path / "bin").mkdir()
    (tmp_path / "include").mkdir()
    compiler = tmp_path / "bin" / "nvcc"
    compiler.write_text(f"#!/bin/sh\necho '{log}'\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setattr(nvcc, "toolkit", lambda: tmp_path)
    sources = Sources("own", "", code, None, (), (), (), (), True, True, implicit_headers=False)
    with pytest.raises(kind) as caught:
        strict.check(sources, tmp_path)
    assert ("has no c" in str(caught.value)) == (kind is NoCompiler)


@pytest.mark.skipif(
    Path("/usr/local/cuda/bin/nvcc").exists(), reason="torch finds this machine's toolkit without the PATH"
)
def test_strict_without_nvcc_says_what_to_install(harness):
    path = os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if not (Path(p) / "nvcc").exists())
    without = {"PATH": path, "CUDA_HOME": "", "CUDA_PATH": ""}
    finished = harness.run("--device", "cpu", "--strict", "--problem", "matmul_tt", environment=without)
    assert finished.code == 4
    assert "--strict needs nvcc, and no nvcc was found" in finished.stderr
