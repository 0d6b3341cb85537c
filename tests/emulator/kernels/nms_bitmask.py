"""Non-maximum suppression: 64 boxes a block, overlaps as bits of a 64-bit word, the sweep on the host."""

import torch

CPP = "torch::Tensor nms_bitmask(torch::Tensor boxes, double threshold);"
CUDA = r"""
#include <torch/extension.h>
#include <vector>

int const threadsPerBlock = sizeof(unsigned long long) * 8;

__device__ inline bool overlaps(float const* a, float const* b, float threshold) {
    const float left = max(a[0], b[0]), right = min(a[2], b[2]), top = max(a[1], b[1]), bottom = min(a[3], b[3]);
    const float inter = max(right - left, 0.f) * max(bottom - top, 0.f);
    return inter > threshold * ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inter);
}

__global__ void nms_kernel(const int n_boxes, const float threshold, const float* dev_boxes, unsigned long long* dev_mask) {
    const int row_start = blockIdx.y, col_start = blockIdx.x;
    if (row_start > col_start) return;
    const int row_size = min(n_boxes - row_start * threadsPerBlock, threadsPerBlock);
    const int col_size = min(n_boxes - col_start * threadsPerBlock, threadsPerBlock);
    __shared__ float block_boxes[threadsPerBlock * 4];
    if (threadIdx.x < col_size)
        for (int j = 0; j < 4; ++j) block_boxes[threadIdx.x * 4 + j] = dev_boxes[(threadsPerBlock * col_start + threadIdx.x) * 4 + j];
    __syncthreads();
    if (threadIdx.x < row_size) {
        const int cur = threadsPerBlock * row_start + threadIdx.x;
        unsigned long long t = 0;
        const int start = row_start == col_start ? threadIdx.x + 1 : 0;
        for (int i = start; i < col_size; i++)
            if (overlaps(dev_boxes + cur * 4, block_boxes + i * 4, threshold)) t |= 1ULL << i;
        dev_mask[cur * gridDim.x + col_start] = t;
    }
}

torch::Tensor nms_bitmask(torch::Tensor boxes, double threshold) {
    const int n = boxes.size(0), col_blocks = (n + threadsPerBlock - 1) / threadsPerBlock;
    auto mask = torch::zeros({n * col_blocks}, boxes.options().dtype(torch::kLong));
    nms_kernel<<<dim3(col_blocks, col_blocks), threadsPerBlock>>>(n, threshold, boxes.data_ptr<float>(), (unsigned long long*)mask.data_ptr<int64_t>());
    auto mask_cpu = mask.to(torch::kCPU);
    auto* host = (unsigned long long*)mask_cpu.data_ptr<int64_t>();
    std::vector<unsigned long long> removed(col_blocks);
    auto keep = torch::zeros({n}, torch::dtype(torch::kBool));
    bool* keep_out = keep.data_ptr<bool>();
    for (int i = 0; i < n; i++) {
        if (removed[i / threadsPerBlock] >> (i % threadsPerBlock) & 1) continue;
        keep_out[i] = true;
        for (int j = i / threadsPerBlock; j < col_blocks; j++) removed[j] |= host[i * col_blocks + j];
    }
    return keep.to(boxes.device());
}
"""


def cases():
    def boxes(n):
        corner = torch.rand(n, 2) * 20
        return torch.cat([corner, corner + torch.rand(n, 2) * 10], 1)

    return [(boxes(n), 0.4) for n in (1, 63, 150)]


def answer(boxes, threshold):
    keep = torch.ones(len(boxes), dtype=torch.bool)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    for i in range(len(boxes)):
        if keep[i]:
            low, high = torch.max(boxes[i, :2], boxes[i + 1 :, :2]), torch.min(boxes[i, 2:], boxes[i + 1 :, 2:])
            inter = (high - low).clamp(min=0).prod(1)
            keep[i + 1 :] &= ~(inter > threshold * (area[i] + area[i + 1 :] - inter))
    return keep
