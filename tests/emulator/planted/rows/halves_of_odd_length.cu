// Bug: the tree halves a length that is no power of two, so that it reads elements behind the array.
// Kind: out-of-bounds read
__global__ void sum_rows(const float* x, float* y, int columns) {
    __shared__ float part[96];
    float mine = 0;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) mine += x[blockIdx.x * columns + c];
    part[threadIdx.x] = mine;
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {
        float other = threadIdx.x < half ? part[threadIdx.x + half] : 0;  // BUG
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += other;
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    sum_rows<<<x.size(0), 96>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
