// Bug: threads whose part of the row is shorter leave the loop, and the kernel, one barrier early.
// Kind: divergent barrier
__global__ void sum_rows(const float* x, float* y, int columns) {
    __shared__ float staged[128];
    float mine = 0;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        staged[threadIdx.x] = x[blockIdx.x * columns + c];
        __syncthreads();  // BUG
        mine += staged[threadIdx.x];
    }
    atomicAdd(&y[blockIdx.x], mine);
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::zeros({x.size(0)}, x.options());
    sum_rows<<<x.size(0), 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
