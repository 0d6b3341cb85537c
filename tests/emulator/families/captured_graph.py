"""Power iteration whose step is captured once, as a graph with a fork and a join, and then launched many times."""

import torch

CPP = "torch::Tensor captured_graph(torch::Tensor a, torch::Tensor start, int64_t steps);"
CUDA = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>

__global__ void multiply_kernel(const float* a, const float* x, float* y, int n, int first, int last) {
    const int row = first + blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= last) return;
    float sum = 0.f;
    for (int c = 0; c < n; ++c) sum += a[row * n + c] * x[c];
    y[row] = sum;
}
__global__ void norm_kernel(const float* y, float* norm, int n) {
    float sum = 0.f;
    for (int i = threadIdx.x; i < n; i += 32) sum += y[i] * y[i];
    for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(0xffffffff, sum, offset);
    if (threadIdx.x == 0) atomicAdd(norm, sum);
}
__global__ void divide_kernel(const float* y, const float* norm, float* x, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = y[i] * rsqrtf(*norm);
}

torch::Tensor captured_graph(torch::Tensor a, torch::Tensor start, int64_t steps) {
    const int n = start.numel(), half = n / 2;
    auto x = start.clone(), y = torch::empty_like(x), norm = torch::empty({1}, x.options());
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    const float* pa = a.data_ptr<float>();
    float *px = x.data_ptr<float>(), *py = y.data_ptr<float>(), *pn = norm.data_ptr<float>();
    cudaStream_t stream, other;
    cudaEvent_t fork, join;
    C10_CUDA_CHECK(cudaStreamCreate(&stream));
    C10_CUDA_CHECK(cudaStreamCreate(&other));
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));

    cudaGraph_t graph;
    cudaGraphExec_t step;
    C10_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    C10_CUDA_CHECK(cudaMemsetAsync(pn, 0, sizeof(float), stream));
    C10_CUDA_CHECK(cudaEventRecord(fork, stream));
    C10_CUDA_CHECK(cudaStreamWaitEvent(other, fork, 0));
    multiply_kernel<<<(half + 31) / 32, 32, 0, stream>>>(pa, px, py, n, 0, half);
    multiply_kernel<<<(n - half + 31) / 32, 32, 0, other>>>(pa, px, py, n, half, n);
    C10_CUDA_CHECK(cudaEventRecord(join, other));
    C10_CUDA_CHECK(cudaStreamWaitEvent(stream, join, 0));
    norm_kernel<<<1, 32, 0, stream>>>(py, pn, n);
    divide_kernel<<<(n + 31) / 32, 32, 0, stream>>>(py, pn, px, n);
    C10_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    C10_CUDA_CHECK(cudaGraphInstantiate(&step, graph, 0));
    for (int64_t i = 0; i < steps; ++i) C10_CUDA_CHECK(cudaGraphLaunch(step, stream));
    C10_CUDA_CHECK(cudaStreamSynchronize(stream));
    C10_CUDA_CHECK(cudaGraphExecDestroy(step));
    C10_CUDA_CHECK(cudaGraphDestroy(graph));
    C10_CUDA_CHECK(cudaEventDestroy(fork));
    C10_CUDA_CHECK(cudaEventDestroy(join));
    C10_CUDA_CHECK(cudaStreamDestroy(stream));
    C10_CUDA_CHECK(cudaStreamDestroy(other));
    return x;
}
"""


def cases():
    return [(torch.rand(n, n), torch.rand(n), steps) for n, steps in [(5, 0), (45, 4)]]


def answer(a, start, steps):
    x = start
    for _ in range(steps):
        x = a @ x
        x = x / x.norm()
    return x
