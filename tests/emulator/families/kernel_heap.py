"""Memory that kernels allocate: by malloc for a block, by new for a thread, and for a later launch."""

import torch

CPP = "torch::Tensor kernel_heap(torch::Tensor x);"
CUDA = r"""
#include <torch/extension.h>

struct Node {
    float value;
    Node* next;
};

// Each block sums a row: the threads put their parts into memory that the first one allocates.
__global__ void sum_rows(const float* x, float* y, int columns) {
    __shared__ float* parts;
    if (threadIdx.x == 0) parts = static_cast<float*>(malloc(blockDim.x * sizeof(float)));
    __syncthreads();
    float part = 0;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) part += x[blockIdx.x * columns + c];
    parts[threadIdx.x] = part;
    __syncthreads();
    if (threadIdx.x) return;
    float sum = 0;
    for (int i = 0; i < blockDim.x; ++i) sum += parts[i];
    y[blockIdx.x] = sum;
    free(parts);
}
// Each thread makes a list, which another launch sums and frees. An array of new takes the steps in between.
__global__ void make_lists(const float* x, Node** lists, int columns) {
    Node* list = nullptr;
    for (int c = 0; c < columns; ++c) list = new Node{x[threadIdx.x * columns + c], list};
    lists[threadIdx.x] = list;
}
__global__ void sum_lists(Node** lists, float* y, int columns) {
    float* sums = new float[columns + 1];
    sums[0] = 0;
    int c = 0;
    for (Node* node = lists[threadIdx.x]; node; ++c) {
        sums[c + 1] = sums[c] + node->value;
        Node* next = node->next;
        delete node;
        node = next;
    }
    y[threadIdx.x] = sums[columns];
    delete[] sums;
    free(nullptr);
}

torch::Tensor kernel_heap(torch::Tensor x) {
    const int rows = x.size(0), columns = x.size(1);
    auto y = torch::empty({2, rows}, x.options());
    auto lists = torch::empty({rows}, x.options().dtype(torch::kLong));
    Node** first = reinterpret_cast<Node**>(lists.data_ptr<int64_t>());
    sum_rows<<<rows, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), columns);
    make_lists<<<1, rows>>>(x.data_ptr<float>(), first, columns);
    sum_lists<<<1, rows>>>(first, y.data_ptr<float>() + rows, columns);
    return y;
}
"""


def cases():
    return [(torch.randn(40, 100),), (torch.randn(5, 9),)]


def answer(x):
    return x.sum(1).expand(2, -1)
