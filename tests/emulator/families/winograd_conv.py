"""A 3 x 3 convolution by Winograd's minimal filtering F(2 x 2, 3 x 3)."""

import torch

CPP = "torch::Tensor winograd_conv(torch::Tensor x, torch::Tensor weight);"
CUDA = r"""
#include <torch/extension.h>

__global__ void filter_kernel(const float* __restrict__ weight, float* __restrict__ u, int pairs) {
    const int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= pairs) return;
    float half[4][3];
    for (int c = 0; c < 3; ++c) {
        const float a = weight[p * 9 + c], b = weight[p * 9 + 3 + c], d = weight[p * 9 + 6 + c];
        half[0][c] = a, half[1][c] = 0.5f * (a + b + d), half[2][c] = 0.5f * (a - b + d), half[3][c] = d;
    }
    for (int r = 0; r < 4; ++r) {
        const float a = half[r][0], b = half[r][1], d = half[r][2];
        float* to = &u[p * 16 + r * 4];
        to[0] = a, to[1] = 0.5f * (a + b + d), to[2] = 0.5f * (a - b + d), to[3] = d;
    }
}

__device__ void input_transform(float (&v)[4]) {
    const float a = v[0], b = v[1], c = v[2], d = v[3];
    v[0] = a - c, v[1] = b + c, v[2] = c - b, v[3] = b - d;
}

// A block computes tiles of one output channel; a thread computes a tile of 2 x 2.
__global__ void tile_kernel(const float* __restrict__ x, const float* __restrict__ u, float* __restrict__ y, int in_channels, int height, int width) {
    const int tiles_x = (width + 1) / 2, tiles_y = (height + 1) / 2, t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= tiles_x * tiles_y) return;
    const int tx = t % tiles_x * 2, ty = t / tiles_x * 2, k = blockIdx.y, n = blockIdx.z;
    float m[4][4] = {};
    for (int c = 0; c < in_channels; ++c) {
        float d[4][4];
        for (int i = 0; i < 4; ++i)
            for (int j = 0; j < 4; ++j) {
                const int sy = ty + i - 1, sx = tx + j - 1;
                const bool inside = sy >= 0 && sy < height && sx >= 0 && sx < width;
                d[i][j] = inside ? x[((n * in_channels + c) * height + sy) * width + sx] : 0.f;
            }
        for (int i = 0; i < 4; ++i) input_transform(d[i]);
        for (int j = 0; j < 4; ++j) {
            float column[4] = {d[0][j], d[1][j], d[2][j], d[3][j]};
            input_transform(column);
            for (int i = 0; i < 4; ++i) m[i][j] += column[i] * u[(k * in_channels + c) * 16 + i * 4 + j];
        }
    }
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) {
            float row[4];
            for (int q = 0; q < 4; ++q) row[q] = i ? m[1][q] - m[2][q] - m[3][q] : m[0][q] + m[1][q] + m[2][q];
            const float value = j ? row[1] - row[2] - row[3] : row[0] + row[1] + row[2];
            if (ty + i < height && tx + j < width) y[((n * gridDim.y + k) * height + ty + i) * width + tx + j] = value;
        }
}

torch::Tensor winograd_conv(torch::Tensor x, torch::Tensor weight) {
    const int batch = x.size(0), channels = x.size(1), height = x.size(2), width = x.size(3), filters = weight.size(0);
    auto u = torch::empty({filters, channels, 16}, x.options()), y = torch::empty({batch, filters, height, width}, x.options());
    filter_kernel<<<(filters * channels + 31) / 32, 32>>>(weight.data_ptr<float>(), u.data_ptr<float>(), filters * channels);
    const int tiles = ((height + 1) / 2) * ((width + 1) / 2);
    tile_kernel<<<dim3((tiles + 31) / 32, filters, batch), 32>>>(x.data_ptr<float>(), u.data_ptr<float>(), y.data_ptr<float>(), channels, height, width);
    return y;
}
"""


def cases():
    return [(torch.randn(n, c, h, w), torch.randn(k, c, 3, 3)) for n, c, h, w, k in [(1, 1, 1, 1, 1), (2, 3, 7, 10, 4)]]


def answer(x, weight):
    return torch.nn.functional.conv2d(x, weight, padding=1)
