"""A palette read by plain fetches from a texture object over linear memory, and through the read-only cache."""

import torch

CPP = "torch::Tensor texture_lookup(torch::Tensor palette, torch::Tensor indices);"
CUDA = r"""
#include <torch/extension.h>
#include <cstring>

__global__ void lookup_kernel(cudaTextureObject_t texture, const float4* __restrict__ plain, const int* __restrict__ indices,
                              float* __restrict__ out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float4 a = tex1Dfetch<float4>(texture, indices[i]), b = __ldg(&plain[indices[i]]);
    out[i * 2] = a.x + 2 * a.y + 3 * a.z + 4 * a.w;
    out[i * 2 + 1] = b.x - b.w;
}

torch::Tensor texture_lookup(torch::Tensor palette, torch::Tensor indices) {
    const int n = indices.numel();
    auto out = torch::empty({n, 2}, palette.options());
    cudaResourceDesc resource;
    memset(&resource, 0, sizeof(resource));
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = palette.data_ptr<float>();
    resource.res.linear.desc = cudaCreateChannelDesc<float4>();
    resource.res.linear.sizeInBytes = palette.numel() * sizeof(float);
    cudaTextureDesc description = {};
    description.readMode = cudaReadModeElementType;
    cudaTextureObject_t texture = 0;
    TORCH_CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr) == cudaSuccess);
    lookup_kernel<<<(n + 63) / 64, 64>>>(texture, reinterpret_cast<const float4*>(palette.data_ptr<float>()), indices.data_ptr<int>(),
                                         out.data_ptr<float>(), n);
    cudaDeviceSynchronize();
    cudaDestroyTextureObject(texture);
    return out;
}
"""


def cases():
    return [(torch.randn(20, 4), torch.randint(0, 20, (90,), dtype=torch.int32))]


def answer(palette, indices):
    picked = palette[indices.long()]
    return torch.stack([picked @ torch.tensor([1.0, 2.0, 3.0, 4.0]), picked[:, 0] - picked[:, 3]], 1)
