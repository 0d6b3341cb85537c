"""PASSED or UNSUPPORTED: asks the L2 cache to keep its inputs, so that the flush before the next call spares them.

Class: timing
Layer: kept lines released before the flush
"""

import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <c10/cuda/CUDAStream.h>
#include <algorithm>

void keep(torch::Tensor x) {
    cudaDeviceProp device;
    cudaGetDeviceProperties(&device, 0);
    cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, device.persistingL2CacheMaxSize);
    cudaStreamAttrValue value = {};
    value.accessPolicyWindow.base_ptr = x.data_ptr();
    value.accessPolicyWindow.num_bytes = std::min<size_t>(x.nbytes(), device.accessPolicyMaxWindowSize);
    value.accessPolicyWindow.hitRatio = 1.0f;
    value.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
    value.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
    cudaStreamSetAttribute(c10::cuda::getCurrentCUDAStream(), cudaStreamAttributeAccessPolicyWindow, &value);
}
"""
ops = load_inline(
    name="keeps_its_inputs_in_l2", cpp_sources="void keep(torch::Tensor x);", cuda_sources=CUDA, functions=["keep"]
)


class ModelNew(torch.nn.Module):
    kept = None

    def forward(self, A, B):
        if self.kept != A.data_ptr():
            self.kept = A.data_ptr()
            ops.keep(A)
        return torch.matmul(A.T, B.T)
