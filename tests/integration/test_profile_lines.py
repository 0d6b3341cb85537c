"""The verb `profile` by source line: sectors and bank conflicts worked out by hand, and the causes that it names."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import shipped_kernels
from support.command import ROOT, Harness

from cuda_on_cpu.compile.candidate_file import CandidateFile
from kernel_harness.core.terminal import Terminal
from kernel_harness.diagnostics import profile
from kernel_harness.diagnostics.profile import accesses, lines
from kernel_harness.diagnostics.profile.accesses import Recorded, Traffic
from kernel_harness.diagnostics.profile.causes import NOTHING_WRONG, Cause, largest
from kernel_harness.diagnostics.profile.expressions import Kind, expression
from kernel_harness.problem import lookup
from kernel_harness.problem.candidate import Candidate
from kernel_harness.workers.fork_server import ForkServer

needs_binutils = pytest.mark.skipif(not shutil.which("addr2line"), reason="needs binutils beside g++")
PROBLEM = ROOT / "tests" / "support" / "candidates" / "new" / "softmax.py"
# Blocks of one warp, if the launch says nothing else. x and y begin at a multiple of 256 bytes. The size of `copy` is
# given by Python, so that another size needs no other build. `lengths` and `updates` are launched beside a large
# `copy` only.
PLANTED = """
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r'''
#include <cuda_fp16.h>

__global__ void copy(const float* x, float* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
}

__global__ void strided(const float* x, float* y) {
    y[threadIdx.x] = x[threadIdx.x * 32] + x[threadIdx.x];
}

template <int STRIDE>
__global__ void conflict(const float* x, float* y) {
    __shared__ float tile[32 * STRIDE];
    tile[threadIdx.x * STRIDE] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x];
}

__global__ void rows(const float* x, float* y) {
    const float4 four = *reinterpret_cast<const float4*>(x + threadIdx.x / 8 * 36 + threadIdx.x % 8 * 4);
    reinterpret_cast<float4*>(y)[threadIdx.x] = four;
}

__global__ void shifted(const float* x, float* y) {
    y[threadIdx.x] = x[threadIdx.x + 1];
}

__global__ void broadcast(const float* x, float* y) {
    __shared__ float one[1];
    if (threadIdx.x == 0) one[0] = x[7];
    __syncthreads();
    y[threadIdx.x] = one[0] * x[5];
}

__global__ void total(const float* x, float* y) {
    atomicAdd(y, x[threadIdx.x]);
}

__global__ void histogram(const int* bin, float* y) {
    __shared__ int bins[64];
    bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[bin[threadIdx.x]], 2);
    __syncthreads();
    y[threadIdx.x] = bins[threadIdx.x];
}

__global__ void wide(const double* x, float4* y, double* z) {
    __shared__ double two[64];
    __shared__ float4 four[64];
    two[threadIdx.x] = x[threadIdx.x];
    two[threadIdx.x * 2] = 1;
    four[threadIdx.x] = y[threadIdx.x];
    four[threadIdx.x * 2] = y[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = four[threadIdx.x];
    z[threadIdx.x] = two[threadIdx.x];
}

__global__ void ragged(const float* x, float* y) {
    float sum = 0;
    for (int i = 0; i < 4; ++i) {
        if (i || threadIdx.x % 2 == 0) sum += x[i * 32 + threadIdx.x];
        __syncwarp();
    }
    y[threadIdx.x] = sum;
}

__global__ void pairs(const float4* x, float4* y) {
    __shared__ float4 four[64];
    __shared__ float2 two[64];
    four[threadIdx.x] = x[threadIdx.x];
    two[threadIdx.x] = {1, 2};
    __syncthreads();
    const float4 a = four[threadIdx.x / 2];
    const float4 b = four[threadIdx.x / 4 * 2 + threadIdx.x % 2];
    const float4 c = four[threadIdx.x / 4 * 2 + threadIdx.x % 4 / 3];
    const float2 d = two[threadIdx.x / 2];
    y[threadIdx.x] = {a.x + d.x, b.y, c.z, a.w};
    four[threadIdx.x / 2] = b;
}

// Lanes 0 to 7 update address 0, lanes 8 to 11 address 1, the others one address of their own in the next sectors.
__global__ void some_equal(float* y) {
    atomicAdd(y + (threadIdx.x < 8 ? 0 : threadIdx.x < 12 ? 1 : threadIdx.x), 1.0f);
}

__device__ __noinline__ float element(const float* x, int i) { return x[i * 64 + threadIdx.x]; }
__global__ void taking_turns(const float* x, float* y) {
    float sum = 0;
    for (int i = 0; i < 4; ++i)
        if (i % 2 == threadIdx.x % 2) sum += x[i * 32 + threadIdx.x];
    for (int i = 0; i < threadIdx.x % 4; ++i) sum += element(x, i);
    if (threadIdx.x < 8) sum += element(x, 5);
    y[threadIdx.x] = sum;
}

__global__ void counts(int* y) {
    atomicAdd(y, 1);
    atomicAdd(y + 1, 2);
    atomicMax(y + 2, 3);
    if (atomicCAS(y + 3, 0, 1) == 0) atomicExch(y + 4, 1);
}

__global__ void unchanged(const float* x, const volatile float* v, float* y, int n) {
    float sum = 0;
    for (int i = 0; i < n; ++i) sum += x[threadIdx.x] * i;  // one address
    for (int i = 0; i < n; ++i) sum += v[threadIdx.x];
    for (int i = 0; i < n; ++i) y[i * 32 + threadIdx.x] = sum + x[64];  // written in between
    y[threadIdx.x] = sum;
}

__global__ void merged(float* y) {
    __shared__ float whole[32][4], padded[32][33], pair[64];
    for (int i = 0; i < 32; ++i) padded[i][threadIdx.x] = 1.f;
    for (int i = 0; i < 4; ++i) whole[threadIdx.x][i] = 1.f;
    for (int i = 0; i < 2; ++i) pair[threadIdx.x * 2 + i] = 1.f;
    __syncthreads();
    float sum = 0.f;
    for (int i = 0; i < 4; ++i) sum += whole[threadIdx.x][i];
    for (int i = 0; i < 32; ++i) sum += padded[threadIdx.x][i];
    for (int i = 0; i < 2; ++i) sum += pair[threadIdx.x * 2 + i];
    __syncthreads();
    for (int i = 0; i < 4; ++i) {
        sum += whole[31][i];
        padded[i][threadIdx.x] = sum;  // may change what is loaded next
    }
    y[threadIdx.x] = sum;
}

__global__ void by_chance(float* y) {
    __shared__ float row[128];
    for (int i = 0; i < 4; ++i) row[i * 32 + threadIdx.x] = 1.f;
    float sum = 0.f;
    for (int s = 4; s > 0; s /= 2) {
        __syncthreads();
        sum += row[threadIdx.x * 2];
        sum += row[threadIdx.x * 2 + s];  // a neighbour in the last step only
    }
    y[threadIdx.x] = sum;
}

__global__ void half_a_warp(float* y) {
    __shared__ float step[4];
    if (threadIdx.x < 4) step[threadIdx.x] = 1.f;
    float sum = 0.f;
    for (int i = 0; i < 4; ++i) {
        __syncwarp();
        sum += step[i];
    }
    y[threadIdx.x] = sum;
}

struct Four { float a, b, c, d; };  // may begin at any float
__global__ void structures(const Four* x, Four* y) { y[threadIdx.x] = x[threadIdx.x]; }

struct Two { double a, b; };  // may begin at any double
__global__ void halves(const Two* x, Two* y) { y[threadIdx.x] = x[threadIdx.x]; }

// Lane l has 36 - l steps, or 8 or 7. The last loop is not unrolled by nvcc.
__global__ void lengths(const float* x, float* y, int n, int m) {
    float sum = 0.f;
    int positive = 0;
    const int lane = threadIdx.x;
    for (int i = lane; i < n; ++i) sum += x[i] * x[lane + 1024];
    for (int i = lane; i < n; ++i) positive += x[i + 2048] > 0;
    for (int i = lane; i < m; i += 32) sum += x[i + 4096];
    for (int i = lane; i < m; i += blockDim.x) sum += x[i + 8192];
    y[lane] = sum + positive;
}

__global__ void repeated(const float* x, float* y, int stride) { y[threadIdx.x] = x[threadIdx.x * stride]; }

__global__ void known(const __half2* x, float* y) {
    __shared__ float sums[4], filter[4];
    const __half2& both = x[threadIdx.x];
    float sum = __low2float(both) + __high2float(both);
    if (threadIdx.x < 4) sums[threadIdx.x] = filter[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int i = 1; i < 4; ++i) sums[0] += sums[i];
    __syncthreads();
    for (int i = 0; i < 4; ++i)
        if (threadIdx.x >= i) sum += filter[i];
    y[threadIdx.x] = sum;
}

// Updates of one place, of 16 places by two threads each, of 4 places by eight each, or of 32 places in one bank.
template <int PATTERN>
__global__ void updates(float* y) {
    __shared__ unsigned long long wide[1024];
    __shared__ int places[1024];
    __shared__ float reals[1024];
    for (int i = threadIdx.x; i < 1024; i += 32) wide[i] = places[i] = reals[i] = 0;
    __syncthreads();
    const int lane = threadIdx.x, p = PATTERN == 0 ? 5 : PATTERN == 1 ? lane / 2 : PATTERN == 2 ? lane % 4 : lane * 32;
    atomicAdd(&places[p], 1);
    const int before = atomicAdd(&places[p], 1);
    atomicOr(&places[p], lane);
    atomicCAS(&places[p], 3, lane);
    atomicAdd(&reals[p], 1.0f);
    atomicAdd(&wide[p], 1ull);
    __syncthreads();
    y[lane] = before + places[lane] + reals[lane] + wide[lane];
}

torch::Tensor run(torch::Tensor input, int64_t blocks, int64_t threads) {
    auto from = torch::zeros({200000}, input.options()), to = torch::zeros({200000}, input.options());
    const float* x = from.data_ptr<float>();
    float* y = to.data_ptr<float>();
    copy<<<blocks, threads>>>(x, y);
    strided<<<1, 32>>>(x, y);
    conflict<2><<<1, 32>>>(x, y);
    conflict<8><<<1, 32>>>(x, y);
    conflict<32><<<1, 32>>>(x, y);
    rows<<<1, 32>>>(x, y);
    shifted<<<1, 32>>>(x, y);
    broadcast<<<1, 32>>>(x, y);
    total<<<1, 32>>>(x, y);
    histogram<<<1, 32>>>(reinterpret_cast<const int*>(x), y);
    wide<<<1, 32>>>(reinterpret_cast<const double*>(x), reinterpret_cast<float4*>(y),
                    reinterpret_cast<double*>(y) + 512);
    ragged<<<1, 32>>>(x, y);
    pairs<<<1, 32>>>(reinterpret_cast<const float4*>(x), reinterpret_cast<float4*>(y));
    taking_turns<<<1, 32>>>(x, y);
    counts<<<1, 32>>>(reinterpret_cast<int*>(y));
    some_equal<<<1, 32>>>(y);
    unchanged<<<1, 32>>>(x, x + 128, y, 5);
    merged<<<1, 32>>>(y);
    by_chance<<<1, 32>>>(y);
    half_a_warp<<<1, 16>>>(y);
    structures<<<1, 32>>>(reinterpret_cast<const Four*>(x), reinterpret_cast<Four*>(y));
    halves<<<1, 32>>>(reinterpret_cast<const Two*>(x), reinterpret_cast<Two*>(y));
    if (threads > 32) {
        lengths<<<1, 32>>>(x, y, 36, 7 * 32 + 16);
        updates<0><<<1, 32>>>(y);
        updates<1><<<1, 32>>>(y);
        updates<2><<<1, 32>>>(y);
        updates<3><<<1, 32>>>(y);
    }
    for (int stride = 1; stride < 9; stride *= 2) repeated<<<1, 32>>>(x, y, stride);
    known<<<1, 32>>>(reinterpret_cast<const __half2*>(x), y);
    copy<<<blocks, threads>>>(x, y);
    return to;
}
'''
CPP = "torch::Tensor run(torch::Tensor x, int64_t blocks, int64_t threads);"
ops = load_inline("planted", CPP, CUDA, functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ops.run(x, 100, 1024)
"""
SHIPPED = ("naive", "coalesced", "tiled", "tiled_pretransposed", "register_tile", "double_buffered")
# In these matrices every tile of each kernel is whole, and every row begins at a sector.
SHAPE = {"M": 128, "K": 64, "N": 128}

pytestmark = needs_binutils


@pytest.fixture(scope="module")
def fork_server() -> Iterator[ForkServer]:
    with ForkServer() as started:
        yield started


@pytest.fixture(scope="module")
def planted(fork_server: ForkServer) -> dict[str, Recorded]:
    """The recorded launches of PLANTED by kernel."""
    candidate = Candidate("planted", Path("planted.py"), PLANTED)
    found = profile.counted(lookup.problem(str(PROBLEM), ROOT), candidate, fork_server, lambda text: None)[2]
    assert len(found) == len({each.launch.kernel for each in found}) == 29
    return {each.launch.kernel: each for each in found}


@pytest.fixture(scope="module")
def shipped(fork_server: ForkServer) -> Callable[[str], Recorded]:
    """The recorded launch of a shipped kernel that multiplies. The kernels are built as one extension."""
    problem = lookup.problem("matmul_tt", ROOT).sized(SHAPE, emulated=True)

    def recorded(name: str) -> Recorded:
        paths = [shipped_kernels.KERNELS / problem.name / f"{each}.py" for each in SHIPPED]
        candidate = shipped_kernels.candidate(paths[SHIPPED.index(name)], paths)
        (only,) = profile.counted(problem, candidate, fork_server, lambda text: None)[2]
        return only

    return recorded


def sums(recorded: Recorded, text: str, kind: Kind) -> Traffic:
    """The accesses whose text begins with `text`, on all lines."""
    found = [each.traffic for each in recorded.accesses if each.text.startswith(text) and each.kind is kind]
    assert found, [(each.text, each.kind) for each in recorded.accesses]
    return sum(found[1:], start=found[0])


def sectors(recorded: Recorded, text: str, kind: Kind = Kind.LOAD) -> tuple[float, float]:
    """The sectors of a request and the least possible."""
    traffic = sums(recorded, text, kind)
    return traffic.sectors / traffic.requests, traffic.least_sectors / traffic.requests


def wavefronts(recorded: Recorded, text: str, kind: Kind = Kind.LOAD) -> tuple[float, float]:
    """The wavefronts of a request and the least possible."""
    traffic = sums(recorded, text, kind)
    return traffic.wavefronts / traffic.requests, traffic.least_wavefronts / traffic.requests


def causes(recorded: Recorded) -> list[Cause]:
    return largest([recorded])


def first_cause(recorded: Recorded) -> Cause:
    return causes(recorded)[0]


def paragraphs(recorded: Recorded) -> list[str]:
    return lines.paragraphs([recorded], Terminal())


def line_of(text: str) -> int:
    (line,) = [i for i, each in enumerate(PLANTED.split("\n"), 1) if text in each]
    return line


# ------------------------------------------------------------------------------------- the kernels of matmul_tt
# A is 64 x 128, B is 128 x 64 and C is 128 x 128, in float32: 32 neighbouring floats are 128 bytes or 4 sectors.


@pytest.mark.slow
def test_naive_reads_a_in_rows_and_writes_c_in_columns(shipped: Callable[[str], Recorded]) -> None:
    """The lanes of a warp have m = 0 to 31 and one n."""
    naive = shipped("naive")
    assert sectors(naive, "A[k * M + m]") == (4, 4)  # k * 512 + m * 4: 128 contiguous bytes
    assert sectors(naive, "B[n * K + k]") == (1, 1)  # one address
    assert sectors(naive, "C[m * N + n]", Kind.STORE) == (32, 4)  # m * 512 bytes apart: a sector for each lane
    # 64 blocks of 8 warps. Each warp reads both elements for 64 k.
    assert sums(naive, "A", Kind.LOAD).requests == sums(naive, "B", Kind.LOAD).requests == 64 * 8 * 64
    assert sums(naive, "C", Kind.STORE).requests == 64 * 8
    assert sums(naive, "C", Kind.STORE).asked_bytes == 64 * 8 * 128


@pytest.mark.slow
def test_coalesced_reads_and_writes_rows(shipped: Callable[[str], Recorded]) -> None:
    """The lanes have x = 0 to 31 and one y. A row of `turned` has 33 floats: column y is in 32 different banks."""
    coalesced = shipped("coalesced")
    assert sectors(coalesced, "column[") == (4, 4)  # column is A + m, and m = first_m + x
    assert sectors(coalesced, "const float4 b") == (1, 1)  # 16 bytes at one address
    assert sectors(coalesced, "C[", Kind.STORE) == (4, 4)
    assert wavefronts(coalesced, "turned[x][y]", Kind.STORE) == (1, 1)
    assert wavefronts(coalesced, "turned[y][x]") == (1, 1)
    # 16 blocks of 32 warps. A warp reads 16 float4 of B and 64 floats of A for each lane.
    assert sums(coalesced, "const float4 b", Kind.LOAD).requests == 16 * 32 * 16
    assert sums(coalesced, "column[", Kind.LOAD).requests == 16 * 32 * 64
    assert causes(coalesced) == []


@pytest.mark.slow
def test_tiled_is_without_conflicts(shipped: Callable[[str], Recorded]) -> None:
    """In the sums, a warp has 2 rows and 16 columns. C: 2 rows of 16 floats, which are 2 sectors each."""
    tiled = shipped("tiled")
    assert sectors(tiled, "A[k * M + m]") == (4, 4)  # 32 neighbouring m
    assert sectors(tiled, "B[n * K + k]") == (4, 4)  # 32 neighbouring k
    assert sectors(tiled, "C[m * N + n]", Kind.STORE) == (4, 4)
    assert wavefronts(tiled, "tile_A[i / TILE_M]", Kind.STORE) == (1, 1)
    assert wavefronts(tiled, "tile_B[i % TILE_K]", Kind.STORE) == (1, 1)  # rows of 129 floats: k * 129 % 32 = k
    assert wavefronts(tiled, "tile_A[k]") == (1, 1)  # two words
    assert wavefronts(tiled, "tile_B[k]") == (1, 1)  # 16 neighbouring words
    # 1 block of 8 warps, and 2 steps of 32 k. A warp loads 32 * 128 / 256 = 16 times from each matrix in a step.
    assert tiled.complete
    assert sums(tiled, "A[", Kind.LOAD).requests == sums(tiled, "B[", Kind.LOAD).requests == 8 * 2 * 16
    assert sums(tiled, "tile_A[k]", Kind.LOAD).requests == 8 * 64 * 8  # 8 rows for each k
    assert all("a thread loads 4 bytes at a time" in cause.sentence for cause in causes(tiled))


@pytest.mark.slow
def test_tiled_pretransposed_reads_rows_of_both_copies(shipped: Callable[[str], Recorded]) -> None:
    product = shipped("tiled_pretransposed")
    assert sectors(product, "P[") == sectors(product, "Q[") == sectors(product, "C[", Kind.STORE) == (4, 4)
    assert wavefronts(product, "tile_P[y][k]") == (2, 2)  # four words, which is one load of all lanes
    assert wavefronts(product, "tile_Q[k][x]") == (1, 1)  # 32 neighbouring words
    # 16 blocks of 32 warps, and 2 steps of 32 k.
    assert sums(product, "P[", Kind.LOAD).requests == 16 * 32 * 2
    assert sums(product, "tile_P[y][k]", Kind.LOAD).requests == 16 * 32 * 64 / 4
    assert sums(product, "tile_Q[k][x]", Kind.LOAD).requests == 16 * 32 * 64


@pytest.mark.slow
def test_register_tile_writes_c_with_gaps(shipped: Callable[[str], Recorded]) -> None:
    tile = shipped("register_tile")
    # A: 32 lanes with 16 neighbouring bytes each are 512 bytes. B: 16 rows, of which two lanes read 32 bytes together.
    assert sectors(tile, "if (aligned && count >= 4) return") == (16, 16)
    # 1 block of 8 warps and 4 steps of 16 k. In a step each thread loads two float4 of A and two of B.
    assert sums(tile, "if (aligned && count >= 4) return", Kind.LOAD).requests == 8 * 4 * 4
    # b.x: 16 neighbouring n of one k, and of k + 4, whose row begins 4 * 132 floats later: 16 banks further.
    for row in ("k", "k + 1", "k + 2", "k + 3"):
        assert wavefronts(tile, f"tile[{row}][n]", Kind.STORE) == (1, 1)
    # Of A, all lanes of a half warp read one address: neighbours are equal. Of B, 16 lanes read 16 neighbouring float4.
    for matrix, count in (("A", 2), ("B", 4)):
        assert wavefronts(tile, f"*reinterpret_cast<const float4*>(&tile_{matrix}[k]") == (count, count)
    # A lane has every fourth float of a row: 16 lanes touch 256 bytes or 8 sectors of each of two rows.
    assert sectors(tile, "C[m * N + n]", Kind.STORE) == (16, 4)
    assert first_cause(tile).text == "C[m * N + n]"


@pytest.mark.slow
def test_an_asynchronous_copy_is_a_load_and_a_copy(shipped: Callable[[str], Recorded]) -> None:
    """A warp copies 512 bytes of a row of A. 1 block of 8 warps copies 64 rows, and a warp one row at once."""
    double_buffered = shipped("double_buffered")
    assert sectors(double_buffered, "asm volatile") == (16, 16)
    assert wavefronts(double_buffered, "asm volatile", Kind.COPY) == (4, 4)
    assert sums(double_buffered, "asm volatile", Kind.LOAD).requests == 64


# --------------------------------------------------------------------------------------------- planted causes


@pytest.mark.slow
def test_strided_loads_come_first_with_their_expression(planted: dict[str, Recorded]) -> None:
    strided = planted["strided"]
    assert sectors(strided, "x[threadIdx.x * 32]") == (32, 4)  # 128 bytes apart
    assert sectors(strided, "x[threadIdx.x]") == (4, 4)  # on the same line
    assert [cause.sentence for cause in causes(strided)] == [
        f"line {line_of('x[threadIdx.x * 32]')}: `x[threadIdx.x * 32]`: each warp reads 32 sectors of 32 bytes for 128 "
        "bytes; let neighbouring threads read neighbouring addresses (8 times fewer sectors). It has 80% of all "
        "sectors."
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ways", "why"),
    [
        (2, "the addresses of neighbouring threads are 8 bytes apart"),
        (8, "the addresses of neighbouring threads are 32 bytes apart"),
        (32, "its threads access rows that begin in the same banks"),
    ],
)
def test_bank_conflicts_are_counted_in_ways(planted: dict[str, Recorded], ways: int, why: str) -> None:
    """With a stride of 2, 8 or 32 words, 32 words lie in 16, 4 or 1 banks."""
    conflict = planted[f"conflict<{ways}>"]
    assert wavefronts(conflict, "tile[threadIdx.x * STRIDE]", Kind.STORE) == (ways, 1)
    assert wavefronts(conflict, "tile[threadIdx.x]") == (1, 1)
    (cause,) = causes(conflict)
    assert cause.line == line_of("tile[threadIdx.x * STRIDE] =")
    assert f"{ways}-way bank conflicts" in cause.sentence and f"{ways} wavefronts instead of 1" in cause.sentence
    assert why in cause.sentence


@pytest.mark.slow
def test_misaligned_rows_are_told_from_strided_ones(planted: dict[str, Recorded]) -> None:
    """Rows of 8 float4 begin 144 bytes apart, so every other row begins inside a sector: 4 + 5 + 4 + 5 sectors."""
    assert sectors(planted["rows"], "const float4 four") == (18, 16)
    cause = first_cause(planted["rows"])
    assert cause.line == line_of("const float4 four = *reinterpret")
    assert "begin inside a sector; align them to 32 bytes (1.1 times fewer sectors)" in cause.sentence
    assert sectors(planted["shifted"], "x[threadIdx.x + 1]") == (5, 4)  # bytes 4 to 132
    assert "begin inside a sector" in first_cause(planted["shifted"]).sentence


@pytest.mark.slow
def test_a_broadcast_is_no_conflict_and_a_fine_kernel_gets_no_blame(planted: dict[str, Recorded]) -> None:
    broadcast = planted["broadcast"]
    assert wavefronts(broadcast, "one[0]") == sectors(broadcast, "x[5]") == (1, 1)
    assert causes(broadcast) == causes(planted["copy"]) == []
    assert paragraphs(planted["copy"])[-1] == NOTHING_WRONG


@pytest.mark.slow
def test_atomics_on_one_address_wait_for_each_other(planted: dict[str, Recorded]) -> None:
    """One request, and no loads of the emulator's own compare-and-swap."""
    updates = sums(planted["total"], "atomicAdd(y", Kind.ATOMIC)
    assert (updates.requests, updates.sectors, updates.least_sectors, updates.repeated) == (1, 32, 1, 31)
    assert sums(planted["total"], "x[threadIdx.x]", Kind.LOAD).requests == 1
    assert len(planted["total"].accesses) == 2
    assert "32 threads of each warp update the same address" in first_cause(planted["total"]).sentence
    updates = sums(planted["some_equal"], "atomicAdd(y", Kind.ATOMIC)
    # The first updates touch y[0], y[1] and y[12] to y[31] in 4 sectors, the 7 further ones of y[0] 1 sector each.
    assert (updates.requests, updates.sectors, updates.least_sectors, updates.repeated) == (1, 4 + 7, 3, 7)
    assert wavefronts(planted["histogram"], "atomicAdd(&bins", Kind.ATOMIC) == (32, 1)
    assert first_cause(planted["histogram"]).line == line_of("atomicAdd(&bins")
    assert "32 threads of each warp update the same address" in first_cause(planted["histogram"]).sentence
    assert sums(planted["histogram"], "atomicAdd(&bins", Kind.ATOMIC).conflicts == 31


@pytest.mark.slow
@pytest.mark.parametrize(("text", "wavefronts", "conflicts"), [
    ("atomicAdd(&places[p], 1)", (1, 1, 1, 32), (0, 0, 0, 31)),
    ("const int before = atomicAdd", (32, 2, 8, 32), (31, 1, 7, 31)),
    ("atomicOr(&places[p]", (32, 2, 8, 32), (31, 1, 7, 31)),
    ("atomicCAS(&places[p]", (64, 4, 16, 64), (31, 1, 7, 31)),
    ("atomicAdd(&reals[p]", (96, 6, 24, 592), (0, 0, 0, 496)),
    ("atomicAdd(&wide[p]", (128, 10, 36, 336), (0, 0, 0, 242)),
])  # fmt: skip
def test_atomics_in_shared_memory_take_the_wavefronts_that_nsight_compute_counts(
    text: str, wavefronts: tuple[int, ...], conflicts: tuple[int, ...], planted: dict[str, Recorded]
) -> None:
    """The figures are those of an H200, for the same addresses: of the updates, and of the loads in their loops."""
    found = [sums(planted[f"updates<{pattern}>"], text, Kind.ATOMIC) for pattern in range(4)]
    assert tuple(each.wavefronts for each in found) == wavefronts
    assert tuple(each.conflicts for each in found) == conflicts


@pytest.mark.slow
def test_wide_accesses_go_in_half_and_quarter_warps(planted: dict[str, Recorded]) -> None:
    wide = planted["wide"]
    assert wavefronts(wide, "two[threadIdx.x]", Kind.STORE) == (2, 2)
    assert wavefronts(wide, "two[threadIdx.x * 2]", Kind.STORE) == (4, 2)  # 16 lanes, 4 words apart: 2 words a bank
    assert wavefronts(wide, "four[threadIdx.x]", Kind.STORE) == (4, 4)
    assert wavefronts(wide, "four[threadIdx.x * 2]", Kind.STORE) == (8, 4)  # 8 lanes, 8 words apart: 2 words a bank
    assert sectors(wide, "x[threadIdx.x]") == (8, 8)
    assert sectors(wide, "y[threadIdx.x]", Kind.STORE) == (16, 16)


@pytest.mark.slow
def test_lanes_that_skip_an_access_are_together_again_after_a_warp_operation(planted: dict[str, Recorded]) -> None:
    """The odd lanes skip the first of four loads: 16 + 3 * 32 floats in 4 requests of 4 sectors. 16 floats fit in 2."""
    traffic = sums(planted["ragged"], "x[i * 32 + threadIdx.x]", Kind.LOAD)
    assert (traffic.requests, traffic.asked_bytes, traffic.sectors) == (4, (16 + 3 * 32) * 4, 16)
    assert traffic.least_sectors == 2 + 3 * 4


@pytest.mark.slow
def test_wide_loads_of_equal_pairs_take_half_as_many_wavefronts(planted: dict[str, Recorded]) -> None:
    """Neighbours, or threads two lanes apart, read one address. A store takes no fewer."""
    pairs = planted["pairs"]
    assert wavefronts(pairs, "const float4 a") == (2, 2)
    assert wavefronts(pairs, "const float4 b") == (2, 2)
    assert wavefronts(pairs, "const float4 c") == (4, 4)  # 0 0 0 1 2 2 2 3
    assert wavefronts(pairs, "const float2 d") == (1, 1)
    assert wavefronts(pairs, "four[threadIdx.x / 2]", Kind.STORE) == (4, 4)


@pytest.mark.slow
def test_lanes_that_leave_a_branch_or_a_loop_wait_behind_it(planted: dict[str, Recorded]) -> None:
    """In each of 4 steps, 16 lanes load 64 bytes in 4 sectors. Then 24, 16, 8 and 8 lanes call a function."""
    turns = planted["taking_turns"]
    traffic = sums(turns, "x[i * 32 + threadIdx.x]", Kind.LOAD)
    assert (traffic.requests, traffic.asked_bytes, traffic.sectors) == (4, 4 * 16 * 4, 4 * 4)
    called = sums(turns, "__device__ __noinline__ float element", Kind.LOAD)
    assert (called.requests, called.asked_bytes) == (3 + 1, (24 + 16 + 8 + 8) * 4)
    assert sums(turns, "y[threadIdx.x]", Kind.STORE).requests == 1


@pytest.mark.slow
def test_a_load_in_a_loop_that_reads_the_same_again_counts_once(planted: dict[str, Recorded]) -> None:
    """Except if it is volatile, or if its thread has written to memory since."""
    unchanged = planted["unchanged"]
    assert sums(unchanged, "x[threadIdx.x]", Kind.LOAD).requests == 1
    assert sums(unchanged, "v[threadIdx.x]", Kind.LOAD).requests == 5
    assert sums(unchanged, "x[64]", Kind.LOAD).requests == 5


@pytest.mark.slow
def test_a_value_that_the_thread_knows_is_not_loaded(planted: dict[str, Recorded]) -> None:
    """It has loaded it in the same basic block, or stored it in the loop."""
    known = planted["known"]
    assert sum(each.traffic.requests for each in known.accesses if not each.shared and each.kind is Kind.LOAD) == 1
    of_loop = [each for each in known.accesses if each.line == line_of("sums[0] += sums[i]")]
    for kind, requests in ((Kind.LOAD, 3), (Kind.STORE, 3)):  # the first load is of sums[0] and sums[1]
        assert sum(each.traffic.requests for each in of_loop if each.kind is kind) == requests


@pytest.mark.slow
def test_loads_of_one_address_for_all_threads_do_not_wait_for_their_conditions(
    planted: dict[str, Recorded],
) -> None:
    assert sums(planted["known"], "filter[i]", Kind.LOAD).requests == 1


@pytest.mark.slow
def test_a_structure_is_accessed_in_parts_of_its_alignment(planted: dict[str, Recorded]) -> None:
    for kind in (Kind.LOAD, Kind.STORE):
        whole = [each.traffic for each in planted["structures"].accesses if each.kind is kind]
        assert [(each.requests, each.asked_bytes) for each in whole] == [(4, 32 * 16)]
        whole = [each.traffic for each in planted["halves"].accesses if each.kind is kind]
        assert [(each.requests, each.asked_bytes) for each in whole] == [(2, 32 * 16)]


@pytest.mark.slow
def test_neighbouring_accesses_to_shared_memory_are_merged(planted: dict[str, Recorded]) -> None:
    """As far as the alignment is known, and nothing is written in between."""
    merged = planted["merged"]
    for kind in (Kind.LOAD, Kind.STORE):
        row = sums(merged, "whole[threadIdx.x][i]", kind)
        assert (row.requests, row.asked_bytes) == (1, 32 * 16)
        # A lane has 8 bytes, and the next lane the next 8.
        assert sums(merged, "pair[threadIdx.x * 2 + i]", kind).requests == 1
    # Rows of 33 words begin at any word. Their columns are without conflicts.
    assert sums(merged, "padded[threadIdx.x][i]", Kind.LOAD).requests == 32
    assert wavefronts(merged, "padded[threadIdx.x][i]") == (1, 1)
    assert sums(merged, "whole[31][i]", Kind.LOAD).requests == 4


@pytest.mark.slow
def test_accesses_that_are_neighbours_at_times_are_not_merged(planted: dict[str, Recorded]) -> None:
    by_chance = planted["by_chance"]
    for text in ("row[threadIdx.x * 2]", "row[threadIdx.x * 2 + s]"):
        assert sums(by_chance, text, Kind.LOAD).requests == 3


@pytest.mark.slow
def test_a_warp_operation_of_all_threads_of_a_small_block_ends_a_wide_access(planted: dict[str, Recorded]) -> None:
    assert sums(planted["half_a_warp"], "step[i]", Kind.LOAD).requests == 4


@pytest.mark.slow
def test_atomics_belong_to_the_lines_that_call_them(planted: dict[str, Recorded]) -> None:
    counts = planted["counts"]
    assert counts.elsewhere == 0
    found = {(each.line, each.kind, each.traffic.requests) for each in counts.accesses}
    calls = ("atomicAdd(y, 1)", "atomicAdd(y + 1", "atomicMax(y + 2", "if (atomicCAS(y + 3")
    assert {(line_of(call), Kind.ATOMIC, 1) for call in calls[:3]} < found
    traffic = [each.traffic for each in counts.accesses if each.line == line_of(calls[3])]
    assert sorted((each.requests, each.threads) for each in traffic) in ([(1, 1), (1, 32)], [(2, 33)])


@pytest.mark.slow
def test_a_large_launch_is_sampled_and_says_so(planted: dict[str, Recorded]) -> None:
    copy = planted["copy"]
    assert (copy.blocks, copy.left_out) == (16, 0)  # with 512 warps
    assert (copy.launches, copy.weight) == (2, 2 * 100 / 16)
    assert sums(copy, "x[i]", Kind.LOAD).requests == sums(copy, "y[i]", Kind.STORE).requests == 512
    assert "sampled, 16 of 100 blocks were recorded" in paragraphs(copy)[0]
    assert "all accesses were recorded" in paragraphs(planted["strided"])[0]


@pytest.mark.slow
def test_threads_with_fewer_steps_of_an_unrolled_loop_take_the_remaining_ones_alone(
    planted: dict[str, Recorded],
) -> None:
    """Four steps are done at a time, and up to three in another loop, which comes first except if it counts integers.

    Lanes 16 to 31 have 3 + 4 steps and the others 4 + 4: 3 + 8 requests. In the loops up to 36, lane 0 has nine times
    four steps, and lane 1 has three that remain.
    """
    lengths = planted["lengths"]
    assert sums(lengths, "x[i + 4096]", Kind.LOAD).requests == 3 + 8
    assert sums(lengths, "x[i + 8192]", Kind.LOAD).requests == 8
    for text, remaining_last in (("x[i]", False), ("x[i + 2048]", True)):
        requests: dict[tuple[bool, int], set[int]] = {}
        for lane in range(32):
            steps, remaining = 36 - lane, (36 - lane) % 4
            alone, by_four = range(remaining), range(remaining, steps)
            if remaining_last:
                alone, by_four = range(steps - remaining, steps), range(steps - remaining)
            for which in (alone, by_four):
                for at, step in enumerate(which):
                    requests.setdefault((which is alone, at), set()).add((lane + step) // 8)
        counted = sums(lengths, text, Kind.LOAD)
        assert (counted.requests, counted.sectors) == (3 + 36, sum(map(len, requests.values())))
    assert sums(lengths, "x[lane + 1024]", Kind.LOAD).requests == 1  # loaded before the loop


@pytest.mark.slow
def test_small_equal_launches_are_all_recorded(planted: dict[str, Recorded]) -> None:
    """They read every, every second, fourth and eighth float."""
    repeated = planted["repeated"]
    assert (repeated.launches, repeated.recorded_launches, repeated.weight) == (4, 4, 1)
    assert sums(repeated, "x[threadIdx.x * stride]", Kind.LOAD).sectors == 4 + 8 + 16 + 32
    assert "all accesses of 4 launches were recorded" in paragraphs(repeated)[0]
    assert (planted["copy"].launches, planted["copy"].recorded_launches) == (2, 1)


@pytest.mark.slow
def test_the_command_prints_the_lines_and_the_causes(harness: Harness, tmp_path: Path) -> None:
    path = tmp_path / "planted.py"
    path.write_text(PLANTED.replace("ops.run(x, 100, 1024)", "ops.run(x, 1, 32)"))
    finished = harness.run("profile", PROBLEM, path, "--device", "cpu")

    assert finished.code == 0, finished.stderr
    line = line_of("x[threadIdx.x * 32]")
    row = rf"^line {line}: x\[threadIdx.x \* 32\] +load +1 +4 +32 +4 +128 +1024 +12%"
    assert re.search(row, finished.stdout, re.MULTILINE), finished.stdout
    assert f"1. conflict<32>, line {line_of('tile[threadIdx.x * STRIDE] =')}" in finished.stdout


# --------------------------------------------------------------------------------------------------- no emulator


@pytest.mark.parametrize(
    ("text", "marked", "found"),
    [
        ("    sum += A[k * M + m] * B[n * K + k];", "] *", "A[k * M + m]"),
        ("    sum += A[k * M + m] * B[n * K + k];", "];", "B[n * K + k]"),
        ("    if (m < M) C[m * N + n] = sum;", "= sum", "C[m * N + n]"),
        ("    tile[i / 4][i % 4] += v;", "+=", "tile[i / 4][i % 4]"),
        ("    v = a[b[i]];", "];", "a[b[i]]"),
        ("    v = here->rows[i].x;", "].", "here->rows[i]"),
        ("    reinterpret_cast<float4*>(y)[i] = v;", "= v", "reinterpret_cast<float4*>(y)[i]"),
        ("    const float4 b = *p;", "b = ", None),
        ("    i]", "]", None),
        ("    é[i] = 1;", "= 1", "é[i]"),
    ],
)
def test_the_expression_is_found_at_its_column(text: str, marked: str, found: str | None) -> None:
    column = len(text[: text.index(marked)].encode()) + 1
    assert expression(text, column, Kind.STORE) == found


def test_a_load_at_an_assignment_is_not_that_of_its_left_side() -> None:
    assert expression("a[i] = b[j];", 6, Kind.STORE) == "a[i]"
    assert expression("a[i] = b[c[j]][2];", 6, Kind.LOAD) == "b[c[j]][2]"
    assert expression("a[i] = b[j] + c[j];", 6, Kind.LOAD) is None
    assert expression("a[i] = i < n ? b[j] : 0;", 14, Kind.LOAD) == "b[j]"
    assert expression("a[i] += b[j];", 6, Kind.LOAD) == "a[i]"
    assert expression("f(a[i]);", 2, Kind.LOAD) == "a[i]"
    assert expression("v = a[b[i]] + 1;", 6, Kind.LOAD) == "a[b[i]]"


def described(**changes: object) -> dict[str, object]:
    """A launch as a worker describes it."""
    return {
        "kernel": "k", "grid": [1, 1, 1], "block": [32, 1, 1], "dynamic_shared_bytes": 0, "barriers": 0,
        "warp_operations": 0, "global_read": 0, "global_written": 0, "shared_read": 0, "shared_written": 0,
        "recorded_launches": 1, "sampled_blocks": 1, "left_out": 0, "instructions": [], "units": [],
        "steps": [], **changes,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("frames", "lines_found"),
    [
        ([["k.cu", 2, "k"]], [2]),
        ([["intrinsics.h", 9, "__ldg"], ["k.cu", 1, "k"]], [1]),
        ([["ptx.h", 9, "void emulator::ptx::copy_ca<8>(int)"], ["k.cu", 1, "k"]], [1]),
        ([["ptx.h", 9, "load_matrices<true>"], ["k.cu", 1, "k"]], []),
        ([["wmma.h", 9, "load_matrix_sync"], ["k.cu", 1, "k"]], []),
        ([["mine.h", 1, "f"]], []),
        ([], []),
    ],
    ids=str,
)
def test_an_access_belongs_to_the_innermost_line_of_the_candidate(frames: list[object], lines_found: list[int]) -> None:
    traffic = {**dict.fromkeys(Traffic.__dataclass_fields__, 4), "ways": 1}
    one = {"kind": "load", "shared": False, "frames": frames, "column": None, **traffic}
    found = accesses.parse(described(instructions=[one, one]), 1, CandidateFile("k.cu", "first\nsecond"))
    assert found
    assert [each.line for each in found.accesses] == lines_found
    assert found.elsewhere == (0 if lines_found else 8)
    for each in found.accesses:  # of the same line: one row
        assert (each.text, each.traffic.requests, each.traffic.ways) == (["first", "second"][each.line - 1], 8, 1)


@pytest.mark.parametrize("missing", ["sectors", "least_sectors"])
def test_a_request_to_global_memory_without_a_sector_is_malformed(missing: str) -> None:
    traffic = {**dict.fromkeys(Traffic.__dataclass_fields__, 4), "ways": 1, missing: 0}
    one = {"kind": "load", "shared": False, "frames": [["k.cu", 1, "k"]], "column": None, **traffic}
    file = CandidateFile("k.cu", "first")
    assert accesses.parse(described(instructions=[{**one, "shared": True}]), 1, file) is not None
    with pytest.raises(ValueError, match="sector"):
        accesses.parse(described(instructions=[one]), 1, file)


@pytest.mark.parametrize(
    "forged",
    [
        {"sampled_blocks": -1},
        {"recorded_launches": 0},
        {"instructions": 3},
        {"instructions": [{}]},
        {"sampled_blocks": "x"},
        {"left_out": None},
    ],
    ids=str,
)
def test_a_forged_record_is_malformed(forged: dict[str, object]) -> None:
    file = CandidateFile("k.cu", "")
    assert accesses.parse(described(), 1, file) is not None
    assert accesses.parse(described(sampled_blocks=0), 1, file) is None
    with pytest.raises((ValueError, TypeError, KeyError)):
        accesses.parse(described(**forged), 1, file)
