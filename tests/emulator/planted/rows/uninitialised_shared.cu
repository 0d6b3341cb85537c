// Bug: threads beyond the row's end leave their part of shared memory as it was, and it is added all the same.
// Kind: uninitialised read
__global__ void sum_rows(const float* x, float* y, int columns) {
    __shared__ float part[256];
    if (threadIdx.x < columns) part[threadIdx.x] = x[blockIdx.x * columns + threadIdx.x];
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        float other = threadIdx.x < half ? part[threadIdx.x + half] : 0;  // BUG
        if (threadIdx.x < half) part[threadIdx.x] += other;
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    sum_rows<<<x.size(0), 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
