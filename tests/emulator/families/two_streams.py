"""A pipeline over two streams: copies in chunks, kernels in both, and events that order them."""

import torch

CPP = "torch::Tensor two_streams(torch::Tensor x);"
CUDA = r"""
#include <torch/extension.h>

__global__ void scale_kernel(const float* in, float* out, int n, float factor) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = in[i] * factor;
}
__global__ void add_neighbours(const float* in, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] + in[(i + 1) % n];
}

torch::Tensor two_streams(torch::Tensor x) {
    const int n = x.numel(), half = n / 2;
    auto out = torch::empty_like(x);
    float *staged, *scaled, *pinned;
    cudaMalloc(&staged, n * sizeof(float));
    cudaMalloc(&scaled, n * sizeof(float));
    cudaMallocHost(&pinned, n * sizeof(float));
    cudaDeviceSynchronize();  // the other streams do not wait for torch's
    cudaStream_t streams[2];
    cudaEvent_t done[2];
    for (int s = 0; s < 2; ++s) {
        cudaStreamCreateWithFlags(&streams[s], cudaStreamNonBlocking);
        cudaEventCreateWithFlags(&done[s], cudaEventDisableTiming);
    }
    for (int s = 0; s < 2; ++s) {
        const int first = s * half, count = s ? n - half : half;
        cudaMemcpyAsync(staged + first, x.data_ptr<float>() + first, count * sizeof(float), cudaMemcpyDeviceToDevice, streams[s]);
        scale_kernel<<<2, 64, 0, streams[s]>>>(staged + first, scaled + first, count, s ? 3.f : 2.f);
        cudaEventRecord(done[s], streams[s]);
    }
    cudaStreamWaitEvent(streams[0], done[1], 0);
    add_neighbours<<<(n + 63) / 64, 64, 0, streams[0]>>>(scaled, out.data_ptr<float>(), n);
    cudaMemcpyAsync(pinned, out.data_ptr<float>(), sizeof(float), cudaMemcpyDeviceToHost, streams[0]);
    cudaStreamSynchronize(streams[0]);
    out[n - 1] += pinned[0];
    for (int s = 0; s < 2; ++s) {
        cudaEventDestroy(done[s]);
        cudaStreamDestroy(streams[s]);
    }
    cudaFree(staged);
    cudaFree(scaled);
    cudaFreeHost(pinned);
    return out;
}
"""


def cases():
    return [(torch.randn(n),) for n in (2, 201)]


def answer(x):
    half = len(x) // 2
    scaled = torch.cat([x[:half] * 2, x[half:] * 3])
    out = scaled + scaled.roll(-1)
    out[-1] += out[0]
    return out
