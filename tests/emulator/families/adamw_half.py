"""AdamW with half parameters and a float master copy: four elements per thread, and a flag for an overflow."""

import torch

CPP = (
    "std::vector<torch::Tensor> adamw_half("
    "torch::Tensor master, torch::Tensor grad, torch::Tensor m, torch::Tensor v, double lr, double decay, double scale);"
)
CUDA = r"""
#include <torch/extension.h>
#include <cuda_fp16.h>
#include <cstdint>

struct alignas(8) Half4 {
    __half2 low, high;
};

__device__ __forceinline__ float updated(float p, float g, float& m, float& v, float lr, float decay) {
    m = 0.9f * m + 0.1f * g;
    v = 0.99f * v + 0.01f * g * g;
    return p - lr * ((m / 0.1f) / (sqrtf(v / 0.01f) + 1e-6f) + decay * p);
}

__global__ void overflow_kernel(const __half* __restrict__ grad, int n, int* found) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const bool bad = i < n && (__hisinf(grad[i]) || __hisnan(grad[i]));
    if (__syncthreads_or(bad) && threadIdx.x == 0) atomicOr(found, 1);
}

__global__ void adamw_kernel(float4* __restrict__ master, const Half4* __restrict__ grad, float4* __restrict__ m,
                             float4* __restrict__ v, Half4* __restrict__ out, const int* __restrict__ skip, int n4,
                             float lr, float decay, float inverse) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n4) return;
    float4 p = master[i];
    if (!*skip) {
        const Half4 g = grad[i];
        const float2 low = __half22float2(g.low), high = __half22float2(g.high);
        float4 mi = m[i], vi = v[i];
        p.x = updated(p.x, low.x * inverse, mi.x, vi.x, lr, decay);
        p.y = updated(p.y, low.y * inverse, mi.y, vi.y, lr, decay);
        p.z = updated(p.z, high.x * inverse, mi.z, vi.z, lr, decay);
        p.w = updated(p.w, high.y * inverse, mi.w, vi.w, lr, decay);
        master[i] = p, m[i] = mi, v[i] = vi;
    }
    out[i] = {__floats2half2_rn(p.x, p.y), __floats2half2_rn(p.z, p.w)};
}

std::vector<torch::Tensor> adamw_half(torch::Tensor master, torch::Tensor grad, torch::Tensor m, torch::Tensor v, double lr,
                                      double decay, double scale) {
    auto p = master.clone(), m1 = m.clone(), v1 = v.clone(), out = torch::empty_like(grad);
    auto skip = torch::zeros({1}, master.options().dtype(torch::kInt));
    const int n = p.numel();
    TORCH_CHECK(n % 4 == 0);
    auto four = [](torch::Tensor& t) { return reinterpret_cast<float4*>(t.data_ptr<float>()); };
    const auto* g = grad.data_ptr<at::Half>();
    overflow_kernel<<<(n + 127) / 128, 128>>>(reinterpret_cast<const __half*>(g), n, skip.data_ptr<int>());
    adamw_kernel<<<(n / 4 + 63) / 64, 64>>>(four(p), reinterpret_cast<const Half4*>(g), four(m1), four(v1),
                                            reinterpret_cast<Half4*>(out.data_ptr<at::Half>()), skip.data_ptr<int>(), n / 4, lr,
                                            decay, 1.0 / scale);
    return {p, m1, v1, out};
}
"""
TOLERANCE = {"rtol": 2e-3, "atol": 1e-4}


def cases():
    out = []
    for n in (4, 300):
        grad = torch.randn(n).half()
        out.append((torch.randn(n), grad, torch.zeros(n), torch.zeros(n), 0.01, 0.1, 8.0))
    overflown = out[-1][1].clone()
    overflown[299] = float("inf")
    return [*out, (out[-1][0], overflown, *out[-1][2:])]


def answer(master, grad, m, v, lr, decay, scale):
    if not torch.isfinite(grad).all():
        return [master, m, v, master.half()]
    g = grad.float() / scale
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    p = master - lr * (m / 0.1 / ((v / 0.01).sqrt() + 1e-6) + decay * master)
    return [p, m, v, p.half()]
