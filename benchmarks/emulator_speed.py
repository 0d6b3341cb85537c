"""How fast emulated kernels run, on one core: a tiled matrix product in GFLOP/s, and kernels without barriers beside
the same loops compiled as plain C++ with the same flags. Prints ratios and goals; run it on an idle machine."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch.utils import cpp_extension  # noqa: E402

from kernel_harness import build  # noqa: E402
from kernel_harness.emulator import compile as emulator  # noqa: E402
from kernel_harness.emulator import torch_cuda  # noqa: E402

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
    """0 where the goals are met, 1 where one is not."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])  # before the first launch counts the cores
    torch.set_num_threads(1)
    emulator.prepare()
    torch_cuda.install(emulator.runtime())
    ops = _built()
    a, b, c = torch.randn(M, K).cuda(), torch.randn(K, N).cuda(), torch.empty(M, N).cuda()
    x, y = torch.randn(ELEMENTS).cuda(), torch.randn(ELEMENTS).cuda()
    print(f"load average before: {os.getloadavg()[0]:.2f}; one core; best of {REPEATS}, median in brackets\n")
    best, median = _timed(lambda: ops.tiled(a, b, c))
    rate, median_rate = (2 * M * N * K / seconds / 1e9 for seconds in (best, median))
    met = [rate >= 1.0]
    print(f"tiled matmul with barriers  {rate:5.2f} GFLOP/s ({median_rate:.2f})  goal 1 {_word(met[-1])}")
    for name, arguments in (("naive", (a, b, c)), ("gelu", (x, y)), ("axpy", (x, y))):
        ours, ours_median = _timed(lambda n=name, w=arguments: getattr(ops, n)(*w))
        plain, plain_median = _timed(lambda n=name, w=arguments: getattr(ops, f"{n}_plain")(*w))
        met.append(ours / plain <= 3)
        print(
            f"{name:6} without barriers  {ours * 1e3:8.3f} ms, plain C++ {plain * 1e3:8.3f} ms: "
            f"{ours / plain:5.2f} times ({ours_median / plain_median:.2f})  goal 3 {_word(met[-1])}"
        )
    print(f"\nload average after: {os.getloadavg()[0]:.2f}")
    return 0 if all(met) else 1


def _built() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "speed.cu"
        build.install(emulator.extension, file, CUDA)
        declarations = [f"void {n}(torch::Tensor a, torch::Tensor b, torch::Tensor c);" for n in THREE]
        declarations += [f"void {n}(torch::Tensor x, torch::Tensor y);" for n in TWO]
        return cpp_extension.load_inline(
            name="emulator_speed", cpp_sources="\n".join(declarations), cuda_sources=CUDA, functions=[*THREE, *TWO]
        )


def _timed(call: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the best call and of the median one, after one to warm up."""
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
