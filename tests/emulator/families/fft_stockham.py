"""A Stockham FFT of radix 4 between two buffers in double precision: no bit reversal, and one launch per pass."""

import torch

CPP = "torch::Tensor fft_stockham(torch::Tensor x);"
CUDA = r"""
#include <torch/extension.h>
#include <utility>

struct Complex {
    double re, im;
    __host__ __device__ Complex operator+(const Complex& o) const { return {re + o.re, im + o.im}; }
    __host__ __device__ Complex operator-(const Complex& o) const { return {re - o.re, im - o.im}; }
    __host__ __device__ Complex operator*(const Complex& o) const { return {re * o.re - im * o.im, re * o.im + im * o.re}; }
};
__device__ inline Complex turn(double halves) {
    Complex out;
    sincospi(halves, &out.im, &out.re);
    return out;
}

__global__ void pass_kernel(const Complex* __restrict__ in, Complex* __restrict__ out, int n, int span) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x, quarter = n / 4;
    if (t >= quarter) return;
    const size_t row = static_cast<size_t>(blockIdx.y) * n;
    const int k = t % span;
    Complex v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = in[row + t + j * quarter] * turn(-2.0 * j * k / (4.0 * span));
    const Complex a = v[0] + v[2], b = v[0] - v[2], c = v[1] + v[3], d = v[1] - v[3], rotated{d.im, -d.re};
    const size_t to = row + static_cast<size_t>(t / span) * span * 4 + k;
    out[to] = a + c;
    out[to + span] = b + rotated;
    out[to + 2 * span] = a - c;
    out[to + 3 * span] = b - rotated;
}

torch::Tensor fft_stockham(torch::Tensor x) {
    const int n = x.size(1), rows = x.size(0);
    auto a = x.clone(), b = torch::empty_like(x);
    for (int span = 1; span < n; span *= 4) {
        pass_kernel<<<dim3((n / 4 + 31) / 32, rows), 32>>>(reinterpret_cast<const Complex*>(a.data_ptr<c10::complex<double>>()),
                                                          reinterpret_cast<Complex*>(b.data_ptr<c10::complex<double>>()), n, span);
        std::swap(a, b);
    }
    return a;
}
"""


def cases():
    return [(torch.randn(3, n, dtype=torch.complex128),) for n in (4, 256)]


def answer(x):
    return torch.fft.fft(x)
