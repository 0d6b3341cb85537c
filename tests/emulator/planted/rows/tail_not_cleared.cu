// Bug: threads behind the last column leave their place in shared memory as it was.
// Kind: uninitialised read
__global__ void sum_rows(const float* x, float* y, int columns) {
    __shared__ float part[256];
    if (threadIdx.x < columns) {
        float mine = 0;
        for (int c = threadIdx.x; c < columns; c += 256) mine += x[blockIdx.x * columns + c];
        part[threadIdx.x] = mine;
    }
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];  // BUG
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    sum_rows<<<x.size(0), 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
