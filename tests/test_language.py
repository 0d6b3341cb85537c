"""CUDA's language under emulation: what sources write is what runs, and what nvcc refuses is refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import ModuleType

import pytest
import torch
from emulated.inside import emulated, extension, inside, load_inline  # noqa: F401 - a fixture

from kernel_harness.build.errors import BuildFailed, UnsupportedConstruct


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
@pytest.mark.parametrize("how", range(7))
def test_a_launch_may_be_written_in_every_way_cuda_has(how):
    x = torch.randn(64)
    expected = {3: 4 * x, 4: -4 * x}.get(how, x + 3)
    assert torch.equal(language().launches(x.cuda(), how).cpu(), expected)


@emulated
def test_constants_recursion_lambdas_and_members_work_in_kernels():
    assert language().device_functions().tolist() == [n + 9 + 110 + 32 for n in (10, 20, 30)]


@emulated
@pytest.mark.parametrize("n", [1, 127, 128, 200])
def test_threads_may_return_before_a_barrier_that_others_reach(n):
    x = torch.randn(n)
    expected = torch.cat([part.flip(0) for part in x.split(128)])
    assert torch.equal(language().reversed_in_blocks(x.cuda()).cpu(), expected)


# --------------------------------------------------------------------- what does not compile, and how it is said


def failure(cuda: str, kind: type[Exception] = BuildFailed, **keywords: object) -> str:
    """What building a source says; its first line is line 1 of kernel.cu."""
    file = Path("kernel.cu")
    file.write_text(cuda)
    with pytest.raises(kind) as caught:
        load_inline(file, name="refused", cpp_sources="void run();", cuda_sources=cuda, functions=["run"], **keywords)
    assert type(caught.value) is kind
    return str(caught.value)


@emulated
@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("cudaGraph_t graph; cudaGraphCreate(&graph, 0);", "cudaGraph_t"),
        ("cudaMemAdvise(nullptr, 0, 0, 0);", "cudaMemAdvise"),
        ("CUtensorMap map;", "CUtensorMap"),
    ],
)
def test_a_call_of_cuda_s_that_the_emulation_lacks_is_unsupported_and_named(line, named):
    said = failure(f"#include <torch/extension.h>\n\nvoid run() {{\n  {line}\n}}\n", UnsupportedConstruct)
    assert said == f"kernel.cu:4: the emulation cannot run {named}."


@emulated
@pytest.mark.parametrize(
    ("include", "line", "named"),
    [
        ("<cub/cub.cuh>", "using Sort = cub::BlockRadixSort<int, 32, 1>;", "BlockRadixSort"),
        ("<cooperative_groups.h>", "auto c = cooperative_groups::this_cluster();", "this_cluster"),
        ("<cuda_fp16.h>", "out[0] = __vadd4(1, 2);", "__vadd4"),
    ],
)
def test_a_device_function_that_the_emulation_lacks_is_unsupported_and_named(include, line, named):
    source = f"#include {include}\n__global__ void k(int* out) {{\n  {line}\n}}\nvoid run() {{}}\n"
    assert failure(source, UnsupportedConstruct) == f"kernel.cu:3: the emulation cannot run {named}."


@emulated
@pytest.mark.parametrize("line", ["cudaMaloc(nullptr, 0);", "__syncthread();", "unknown_function();"])
def test_a_name_that_cuda_lacks_too_is_the_author_s_error(line):
    assert failure(f"\nvoid run() {{\n  {line}\n}}\n").startswith("kernel.cu:3: error: ")


@emulated
@pytest.mark.parametrize("name", ["Sum", "Max", "Min", "Int2Type<1>", "TransformInputIterator<int, int, int*>"])
def test_what_cuda_13_took_out_of_cub_is_not_there(name):
    source = f"#include <cub/cub.cuh>\n__global__ void k() {{\n  cub::{name} gone;\n}}\nvoid run() {{}}\n"
    assert failure(source).startswith(f"kernel.cu:3: error: '{name.split('<')[0]}' is not a member of 'cub'")


@emulated
@pytest.mark.parametrize(
    "line",
    [
        "long x = 0; atomicAdd(&x, 1L);",  # no such overload
        "short x = 0; atomicAdd(&x, x);",
        "long n = 4; int m = min(1, n);",  # ambiguous
        "__half h = 1.0f;",  # torch's flags take half's conversions away
        "__half h; h = h + h;",
    ],
)
def test_what_nvcc_refuses_is_refused(line):
    source = f"#include <torch/extension.h>\n__global__ void k() {{\n  {line}\n}}\nvoid run() {{}}\n"
    assert failure(source).startswith("kernel.cu:3: error: ")


@emulated
def test_half_s_operators_come_back_with_the_flags_that_others_use():
    source = "#include <cuda_fp16.h>\n__global__ void k(__half* h) { *h = *h + __half(1.0f); }\nvoid run() {}\n"
    file = Path("kernel.cu")
    file.write_text(source)
    flags = ["-U__CUDA_NO_HALF_OPERATORS__", "-U__CUDA_NO_HALF_CONVERSIONS__"]
    load_inline(
        file,
        name="operators",
        cpp_sources="void run();",
        cuda_sources=source,
        functions=["run"],
        extra_cuda_cflags=flags,
    ).run()


@emulated
@pytest.mark.parametrize("rows", [96, 97])
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
        file = Path("kernel.cu")
        file.write_text(source)
        load_inline(file, name="fits", cpp_sources="void run();", cuda_sources=source, functions=["run"])
    else:
        said = failure(source)
        assert "k(float*) uses too much shared memory (49664 bytes, at most 49152)" in said
        assert said.startswith(("kernel.cu:3: ", "kernel.cu:4: "))


# ------------------------------------------------------------------------------------------------- --strict

KERNEL = """
#include <torch/extension.h>
__global__ void product(const float* a, const float* b, float* c, int M, int K, int N) {
    const int row = blockIdx.y, col = blockIdx.x;
    float sum = 0;
    for (int k = 0; k < K; ++k) sum += a[k * M + row] * b[col * K + k];
    c[row * N + col] = sum;
    HERE
}
torch::Tensor forward(torch::Tensor a, torch::Tensor b) {
    auto c = torch::empty({a.size(1), b.size(0)}, a.options());
    const int M = a.size(1), K = a.size(0), N = b.size(0);
    product<<<dim3(N, M), 1>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), M, K, N);
    return c;
}
"""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
def test_strict_refuses_what_only_the_emulation_takes(typed, tmp_path):
    # A host function called in a kernel: the emulation cannot tell one from a device function.
    (tmp_path / "host_call.cu").write_text(
        "static int of_the_host() { return 0; }\n" + KERNEL.replace("HERE", "c[row * N + col] += of_the_host();")
    )
    words = ["--problem", "matmul_tt", "--device", "cpu", "--shape", "M=5,K=7,N=3", "--rounds", "1", "--json"]
    words += ["--results", tmp_path / "results", "--kernel", tmp_path / "host_call.cu"]
    loose = typed(*words).results
    strict = typed(*words, "--strict", "--kernel", "naive").results
    assert loose["host_call"]["status"] == "PASSED"
    assert strict["naive"]["status"] == "PASSED"
    assert strict["host_call"]["status"] == "BUILD_ERROR"
    assert "host_call.cu:9: error: calling a __host__ function" in strict["host_call"]["reason"]
    assert "--strict" in strict["host_call"]["reproduce"]


@pytest.mark.skipif(
    Path("/usr/local/cuda/bin/nvcc").exists(), reason="torch finds this machine's toolkit without the PATH"
)
def test_strict_without_nvcc_says_what_to_install(harness):
    path = os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if not (Path(p) / "nvcc").exists())
    without = {"PATH": path, "CUDA_HOME": "", "CUDA_PATH": ""}
    finished = harness.run("--device", "cpu", "--strict", "--problem", "matmul_tt", environment=without)
    assert finished.code == 4
    assert "--strict compiles with nvcc, too, and there is none" in finished.stderr
