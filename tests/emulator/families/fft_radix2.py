"""An FFT of a power of two: bit reversal by `__brev`, then butterflies in place in shared memory."""

import torch

CPP = "torch::Tensor fft_radix2(torch::Tensor x, bool inverse);"
CUDA = r"""
#include <torch/extension.h>
#include <math_constants.h>

template <bool INVERSE>
__global__ void fft_kernel(const float2* __restrict__ in, float2* __restrict__ out, int n, int bits) {
    extern __shared__ float2 data[];
    const size_t base = static_cast<size_t>(blockIdx.x) * n;
    for (int i = threadIdx.x; i < n; i += blockDim.x) data[__brev(i) >> (32 - bits)] = in[base + i];
    __syncthreads();
    for (int half = 1; half < n; half *= 2) {
        for (int t = threadIdx.x; t < n / 2; t += blockDim.x) {
            const int k = t & (half - 1), low = 2 * (t - k) + k, high = low + half;
            float sine, cosine;
            __sincosf((INVERSE ? CUDART_PI_F : -CUDART_PI_F) * k / half, &sine, &cosine);
            const float2 a = data[low], b = data[high];
            const float2 turned = make_float2(b.x * cosine - b.y * sine, b.x * sine + b.y * cosine);
            data[low] = make_float2(a.x + turned.x, a.y + turned.y);
            data[high] = make_float2(a.x - turned.x, a.y - turned.y);
        }
        __syncthreads();
    }
    const float scale = INVERSE ? 1.f / n : 1.f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) out[base + i] = make_float2(data[i].x * scale, data[i].y * scale);
}

torch::Tensor fft_radix2(torch::Tensor x, bool inverse) {
    auto out = torch::empty_like(x);
    const int n = x.size(1);
    TORCH_CHECK(n > 1 && (n & (n - 1)) == 0);
    const auto* in = reinterpret_cast<const float2*>(x.data_ptr<c10::complex<float>>());
    auto* to = reinterpret_cast<float2*>(out.data_ptr<c10::complex<float>>());
    auto kernel = inverse ? fft_kernel<true> : fft_kernel<false>;
    kernel<<<x.size(0), 32, n * sizeof(float2)>>>(in, to, n, __builtin_ctz(n));
    return out;
}
"""


def cases():
    return [
        (torch.randn(2, n, dtype=torch.complex64), inverse) for n, inverse in [(2, False), (128, False), (64, True)]
    ]


def answer(x, inverse):
    return (torch.fft.ifft if inverse else torch.fft.fft)(x)
