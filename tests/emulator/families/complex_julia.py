"""Complex numbers of three kinds: thrust's for Julia sets, cuComplex for a product, and c10's for a rotation."""

import torch

CPP = "std::vector<torch::Tensor> complex_julia(torch::Tensor z, torch::Tensor w);"
CUDA = r"""
#include <torch/extension.h>
#include <cuComplex.h>
#include <thrust/complex.h>

__global__ void julia_kernel(const thrust::complex<float>* z, int* steps, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const thrust::complex<float> c(-0.4f, 0.6f);
    thrust::complex<float> value = z[i];
    int count = 0;
    while (count < 40 && thrust::norm(value) < 4.0f) {
        value = value * value + c;
        ++count;
    }
    steps[i] = count;
}
__global__ void product_kernel(const cuFloatComplex* z, const cuFloatComplex* w, cuFloatComplex* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const cuFloatComplex quotient = cuCdivf(z[i], w[i]);
    out[i] = cuCaddf(cuCmulf(quotient, cuConjf(w[i])), make_cuFloatComplex(cuCrealf(z[i]), 0.5f * cuCabsf(w[i])));
}
template <typename T>
__global__ void rotate_kernel(const c10::complex<T>* z, c10::complex<T>* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = z[i] * c10::complex<T>(T(0), T(1)) + std::conj(z[i]);
}

std::vector<torch::Tensor> complex_julia(torch::Tensor z, torch::Tensor w) {
    using complex = c10::complex<float>;
    const int n = z.numel(), blocks = (n + 63) / 64;
    auto steps = torch::empty({n}, z.options().dtype(torch::kInt)), product = torch::empty_like(z), rotated = torch::empty_like(z);
    const auto* in = z.data_ptr<complex>();
    julia_kernel<<<blocks, 64>>>(reinterpret_cast<const thrust::complex<float>*>(in), steps.data_ptr<int>(), n);
    product_kernel<<<blocks, 64>>>(reinterpret_cast<const cuFloatComplex*>(in), reinterpret_cast<const cuFloatComplex*>(w.data_ptr<complex>()),
                                   reinterpret_cast<cuFloatComplex*>(product.data_ptr<complex>()), n);
    rotate_kernel<<<blocks, 64>>>(in, rotated.data_ptr<complex>(), n);
    return {steps, product, rotated};
}
"""


def cases():
    return [
        (torch.complex(torch.arange(n) * 0.013, torch.ones(n) * 0.1), torch.randn(n, dtype=torch.complex64))
        for n in (1, 100)
    ]


def answer(z, w):
    value, steps = z.to(torch.complex128), torch.zeros(len(z), dtype=torch.int32)
    for _ in range(40):
        going = value.abs() < 2
        steps += going.int()
        value = torch.where(going, value * value + complex(-0.4, 0.6), value)
    return [steps, z / w * w.conj() + torch.complex(z.real, 0.5 * w.abs()), z * 1j + z.conj()]
