// Bug: every block adds to a workspace from cudaMalloc that nobody has set to zero.
// Kind: uninitialised read
__global__ void sum_rows(const float* x, float* sums, int columns) {
    for (int c = threadIdx.x; c < columns; c += blockDim.x)
        atomicAdd(&sums[blockIdx.x], x[blockIdx.x * columns + c]);  // BUG
}

__global__ void copy(const float* sums, float* y, int rows) {
    if (threadIdx.x < rows) y[threadIdx.x] = sums[threadIdx.x];
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    float* sums;
    cudaMalloc(&sums, x.size(0) * sizeof(float));
    sum_rows<<<x.size(0), 64>>>(x.data_ptr<float>(), sums, x.size(1));
    copy<<<1, 64>>>(sums, y.data_ptr<float>(), x.size(0));
    cudaFree(sums);
    return y;
}
