"""Measures how fast emulated kernels run on one core.

    python benchmarks/emulator_speed.py [--write]

The speed of a tiled matrix product is given in GFLOP/s. Kernels without barriers are compared with the same loops in
plain C++, compiled with the same flags. How fast these loops are depends on the machine, so the time of an emulated
thread is given as well. Run it on an idle machine. With --write, the table in docs/emulator.md is
replaced. The exit code is 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import pages
import torch
from tabulate import tabulate
from torch.utils import cpp_extension

from cuda_on_cpu.compile import load_inline
from cuda_on_cpu.compile.candidate_file import CandidateFile
from cuda_on_cpu.emulator import extension, shared_parts, torch_cuda

REPEATS = 7
M, N, K = 256, 512, 1024
ELEMENTS = 1 << 20

CUDA = r"""
#include <torch/extension.h>

template <int TILE>
__global__ void tiled_kernel(const float* a, const float* b, float* c, int M, int N, int K) {
    __shared__ float as[TILE][TILE], bs[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += TILE) {
        as[threadIdx.y][threadIdx.x] = a[row * K + k0 + threadIdx.x];
        bs[threadIdx.y][threadIdx.x] = b[(k0 + threadIdx.y) * N + col];
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += as[threadIdx.y][k] * bs[k][threadIdx.x];
        __syncthreads();
    }
    c[row * N + col] = sum;
}

__global__ void naive_kernel(const float* a, const float* b, float* c, int M, int N, int K) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= M || col >= N) return;
    float sum = 0;
    for (int k = 0; k < K; ++k) sum += a[row * K + k] * b[k * N + col];
    c[row * N + col] = sum;
}

__global__ void gelu_kernel(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}

__global__ void axpy_kernel(const float* x, float* y, float a, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

void tiled(torch::Tensor a, torch::Tensor b, torch::Tensor c) {
    const int M = a.size(0), K = a.size(1), N = b.size(1);
    const dim3 grid(N / 16, M / 16), block(16, 16);
    tiled_kernel<16><<<grid, block>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), M, N, K);
}
void naive(torch::Tensor a, torch::Tensor b, torch::Tensor c) {
    const int M = a.size(0), K = a.size(1), N = b.size(1);
    const dim3 grid((N + 15) / 16, (M + 15) / 16), block(16, 16);
    naive_kernel<<<grid, block>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), M, N, K);
}
void gelu(torch::Tensor x, torch::Tensor y) {
    gelu_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
}
void axpy(torch::Tensor x, torch::Tensor y) {
    axpy_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), 0.5f, x.numel());
}

static void naive_loops(const float* a, const float* b, float* c, int M, int N, int K) {
    for (int row = 0; row < M; ++row)
        for (int col = 0; col < N; ++col) {
            float sum = 0;
            for (int k = 0; k < K; ++k) sum += a[row * K + k] * b[k * N + col];
            c[row * N + col] = sum;
        }
}
static void gelu_loop(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}
static void axpy_loop(const float* x, float* y, float a, int n) {
    for (int i = 0; i < n; ++i) y[i] = a * x[i] + y[i];
}
void naive_plain(torch::Tensor a, torch::Tensor b, torch::Tensor c) {
    naive_loops(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), a.size(0), b.size(1), a.size(1));
}
void gelu_plain(torch::Tensor x, torch::Tensor y) { gelu_loop(x.data_ptr<float>(), y.data_ptr<float>(), x.numel()); }
void axpy_plain(torch::Tensor x, torch::Tensor y) {
    axpy_loop(x.data_ptr<float>(), y.data_ptr<float>(), 0.5f, x.numel());
}
"""
THREE, TWO = ("tiled", "naive", "naive_plain"), ("gelu", "axpy", "gelu_plain", "axpy_plain")


def main() -> int:
    """Measures, prints the table and returns the exit code: 0 if every goal is met, otherwise 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the table in docs/emulator.md")
    options = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])  # the emulator counts the cores at its first launch
    torch.set_num_threads(1)
    shared_parts.prepare()
    torch_cuda.install(shared_parts.runtime())
    print(f"load average before: {os.getloadavg()[0]:.2f}; one core; best of {REPEATS}, median in brackets\n")
    rows, met = _measured(_built())
    headers = ("kernel", "speed", "median", "goal", "")
    print(tabulate(rows, headers, disable_numparse=True))
    print(f"\nload average after: {os.getloadavg()[0]:.2f}")
    if options.write:
        best_only = [(kernel, speed, goal, word) for kernel, speed, _, goal, word in rows]
        table = tabulate(best_only, ("kernel", "speed", "goal", ""), tablefmt="github", disable_numparse=True)
        pages.write("emulator.md", "emulator speed", table)
    return 0 if met else 1


def _measured(ops: Any) -> tuple[list[tuple[str, ...]], bool]:
    """Measures every kernel. Returns the rows of the table, and whether every goal is met."""
    a, b, c = torch.randn(M, K).cuda(), torch.randn(K, N).cuda(), torch.empty(M, N).cuda()
    x, y = torch.randn(ELEMENTS).cuda(), torch.randn(ELEMENTS).cuda()
    best, median = _timed(lambda: ops.tiled(a, b, c))
    rate, median_rate = (2 * M * N * K / seconds / 1e9 for seconds in (best, median))
    met = [rate >= 1.0]
    rows = [
        (
            "tiled matmul, with barriers",
            f"{rate:.2f} GFLOP/s a core",
            f"({median_rate:.2f})",
            "at least 1",
            _word(met[0]),
        )
    ]
    elementwise = ((x, y), ELEMENTS)
    for name, arguments, threads in (("naive", (a, b, c), M * N), ("gelu", *elementwise), ("axpy", *elementwise)):
        ours, ours_median = _timed(lambda n=name, w=arguments: getattr(ops, n)(*w))
        plain, plain_median = _timed(lambda n=name, w=arguments: getattr(ops, f"{n}_plain")(*w))
        ratio, median_ratio = ours / plain, ours_median / plain_median
        met.append(ratio <= 3)
        text = f"{ratio:.2f} times plain C++, {ours / threads * 1e9:.1f} ns a thread"
        rows.append((f"{name}, without barriers", text, f"({median_ratio:.2f})", "at most 3", _word(met[-1])))
    return rows, all(met)


def _built() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "speed.cu"
        load_inline.install(extension.get_or_build, CandidateFile(str(file), CUDA))
        declarations = [f"void {n}(torch::Tensor a, torch::Tensor b, torch::Tensor c);" for n in THREE]
        declarations += [f"void {n}(torch::Tensor x, torch::Tensor y);" for n in TWO]
        return cpp_extension.load_inline(
            name="emulator_speed", cpp_sources="\n".join(declarations), cuda_sources=CUDA, functions=[*THREE, *TWO]
        )


def _timed(call: Callable[[], object]) -> tuple[float, float]:
    """Returns the seconds of the best call and of the median call, of REPEATS calls after one warm-up call."""
    call()
    samples = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return min(samples), statistics.median(samples)


def _word(met: bool) -> str:
    return "met" if met else "missed"


if __name__ == "__main__":
    sys.exit(main())
