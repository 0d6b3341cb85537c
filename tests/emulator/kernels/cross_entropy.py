"""Cross entropy and its gradient with respect to the logits, a block per sample."""

import torch

CPP = "std::tuple<torch::Tensor, torch::Tensor> cross_entropy(torch::Tensor logits, torch::Tensor target, int64_t ignore_index);"
CUDA = r"""
#include <torch/extension.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <math_constants.h>
#include <tuple>

#define BLOCK 128

enum class ReduceOp { Max, Sum };

template <ReduceOp op>
__device__ float blockReduce(float val, float* shared) {
    int tid = threadIdx.x;
    shared[tid] = val;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) shared[tid] = op == ReduceOp::Max ? fmaxf(shared[tid], shared[tid + s]) : shared[tid] + shared[tid + s];
        __syncthreads();
    }
    float result = shared[0];
    __syncthreads();
    return result;
}

__global__ void forward_kernel(const float* logits, const int64_t* target, float* loss, float* lse_out, int C, int64_t ignore_index) {
    extern __shared__ float buffer[];
    const float* row = logits + (size_t)blockIdx.x * C;
    float m = -CUDART_INF_F;
    for (int c = threadIdx.x; c < C; c += blockDim.x) m = max(m, row[c]);
    m = blockReduce<ReduceOp::Max>(m, buffer);
    float s = 0;
    for (int c = threadIdx.x; c < C; c += blockDim.x) s += expf(row[c] - m);
    s = blockReduce<ReduceOp::Sum>(s, buffer);
    if (!threadIdx.x) {
        const int64_t t = target[blockIdx.x];
        const float lse = logf(s) + m;
        lse_out[blockIdx.x] = lse;
        loss[blockIdx.x] = t == ignore_index ? 0.f : lse - row[t];
    }
}

__global__ void backward_kernel(const float* logits, const int64_t* target, const float* lse, float* grad, int N, int C, int64_t ignore_index) {
    const int64_t stride = (int64_t)blockDim.x * gridDim.x;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < (int64_t)N * C; i += stride) {
        const int n = i / C, c = i % C;
        const int64_t t = target[n];
        grad[i] = t == ignore_index ? 0.f : __expf(logits[i] - lse[n]) - (c == t ? 1.f : 0.f);
    }
}

std::tuple<torch::Tensor, torch::Tensor> cross_entropy(torch::Tensor logits, torch::Tensor target, int64_t ignore_index) {
    TORCH_CHECK(logits.is_cuda() && target.is_cuda(), "tensors must be on the GPU");
    TORCH_CHECK(target.scalar_type() == torch::kInt64, "target must be int64");
    const int N = logits.size(0), C = logits.size(1);
    auto loss = torch::empty({N}, logits.options());
    auto lse = torch::empty({N}, logits.options());
    auto grad = torch::empty_like(logits);
    forward_kernel<<<N, BLOCK, BLOCK * sizeof(float)>>>(logits.data_ptr<float>(), target.data_ptr<int64_t>(),
                                                        loss.data_ptr<float>(), lse.data_ptr<float>(), C, ignore_index);
    backward_kernel<<<2, 256>>>(logits.data_ptr<float>(), target.data_ptr<int64_t>(), lse.data_ptr<float>(),
                                grad.data_ptr<float>(), N, C, ignore_index);
    cudaError_t err = cudaGetLastError();
    if (err != cudaSuccess) throw std::runtime_error(std::string("CUDA kernel failed: ") + cudaGetErrorString(err));
    return std::make_tuple(loss, grad);
}
"""


def cases():
    target = torch.tensor([0, 4, 2, -100, 1])
    return [(torch.randn(5, 5), target, -100), (torch.randn(5, 301) * 4, target, -100)]


def answer(logits, target, ignore_index):
    logits = logits.clone().requires_grad_()
    loss = torch.nn.functional.cross_entropy(logits, target, ignore_index=ignore_index, reduction="none")
    loss.sum().backward()
    return loss.detach(), logits.grad
