"""A blur along rows and then along columns, with the weights in constant memory and a border that repeats."""

import torch

CPP = "torch::Tensor separable_blur(torch::Tensor image, torch::Tensor weights);"
CUDA = r"""
#include <torch/extension.h>

constexpr int kMost = 15;
__constant__ float blur_weights[kMost];
__constant__ int blur_radius;

template <bool ALONG_ROWS>
__global__ void blur_kernel(const float* __restrict__ in, float* __restrict__ out, int height, int width) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height) return;
    float sum = 0.f;
    for (int k = -blur_radius; k <= blur_radius; ++k) {
        const int sx = ALONG_ROWS ? min(max(x + k, 0), width - 1) : x, sy = ALONG_ROWS ? y : min(max(y + k, 0), height - 1);
        sum = fmaf(blur_weights[k + blur_radius], __ldg(in + sy * width + sx), sum);
    }
    out[y * width + x] = sum;
}

torch::Tensor separable_blur(torch::Tensor image, torch::Tensor weights) {
    const int height = image.size(0), width = image.size(1), radius = weights.numel() / 2;
    TORCH_CHECK(weights.numel() <= kMost && !weights.is_cuda());
    cudaMemcpyToSymbol(blur_weights, weights.data_ptr<float>(), weights.numel() * sizeof(float));
    cudaMemcpyToSymbol(blur_radius, &radius, sizeof(int));
    auto half = torch::empty_like(image), out = torch::empty_like(image);
    const dim3 block(16, 4), grid((width + 15) / 16, (height + 3) / 4);
    blur_kernel<true><<<grid, block>>>(image.data_ptr<float>(), half.data_ptr<float>(), height, width);
    blur_kernel<false><<<grid, block>>>(half.data_ptr<float>(), out.data_ptr<float>(), height, width);
    return out;
}
"""


class OnHost(torch.Tensor):
    """A tensor that stays on the host."""

    def cuda(self):
        return self.as_subclass(torch.Tensor)


def cases():
    return [(torch.randn(h, w), torch.rand(k).as_subclass(OnHost)) for h, w, k in [(1, 1, 3), (9, 33, 7)]]


def answer(image, weights):
    weights = weights.as_subclass(torch.Tensor)
    r = len(weights) // 2
    padded = torch.nn.functional.pad(image[None, None], (r, r, r, r), mode="replicate")
    return torch.nn.functional.conv2d(padded, torch.outer(weights, weights)[None, None])[0, 0]
