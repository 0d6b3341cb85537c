"""A stencil of 27 points: a tile with its halo in shared memory, loaded by all threads in a flat loop."""

import torch

CPP = "torch::Tensor stencil_27(torch::Tensor x, torch::Tensor weights);"
CUDA = r"""
#include <torch/extension.h>

constexpr int TX = 8, TY = 4, TZ = 4;
__constant__ float stencil_weights[27];

__global__ void stencil_kernel(const float* __restrict__ in, float* __restrict__ out, int nx, int ny, int nz) {
    __shared__ float tile[TZ + 2][TY + 2][TX + 2];
    const int x0 = blockIdx.x * TX, y0 = blockIdx.y * TY, z0 = blockIdx.z * TZ;
    const int tid = (threadIdx.z * TY + threadIdx.y) * TX + threadIdx.x;
    for (int i = tid; i < (TX + 2) * (TY + 2) * (TZ + 2); i += TX * TY * TZ) {
        const int lx = i % (TX + 2), ly = i / (TX + 2) % (TY + 2), lz = i / ((TX + 2) * (TY + 2));
        const int gx = x0 + lx - 1, gy = y0 + ly - 1, gz = z0 + lz - 1;
        const bool inside = gx >= 0 && gx < nx && gy >= 0 && gy < ny && gz >= 0 && gz < nz;
        tile[lz][ly][lx] = inside ? in[(gz * ny + gy) * nx + gx] : 0.f;
    }
    __syncthreads();
    const int x = x0 + threadIdx.x, y = y0 + threadIdx.y, z = z0 + threadIdx.z;
    if (x >= nx || y >= ny || z >= nz) return;
    float sum = 0.f;
#pragma unroll
    for (int k = 0; k < 27; ++k) sum += stencil_weights[k] * tile[threadIdx.z + k / 9][threadIdx.y + k / 3 % 3][threadIdx.x + k % 3];
    out[(z * ny + y) * nx + x] = sum;
}

torch::Tensor stencil_27(torch::Tensor x, torch::Tensor weights) {
    auto out = torch::empty_like(x);
    const int nz = x.size(0), ny = x.size(1), nx = x.size(2);
    cudaMemcpyToSymbol(stencil_weights, weights.data_ptr<float>(), 27 * sizeof(float), 0, cudaMemcpyDeviceToDevice);
    dim3 grid((nx + TX - 1) / TX, (ny + TY - 1) / TY, (nz + TZ - 1) / TZ), block(TX, TY, TZ);
    stencil_kernel<<<grid, block>>>(x.data_ptr<float>(), out.data_ptr<float>(), nx, ny, nz);
    return out;
}
"""


def cases():
    return [(torch.randn(*shape), torch.randn(27)) for shape in [(1, 1, 1), (5, 9, 17)]]


def answer(x, weights):
    return torch.nn.functional.conv3d(x[None, None], weights.view(1, 1, 3, 3, 3), padding=1)[0, 0]
