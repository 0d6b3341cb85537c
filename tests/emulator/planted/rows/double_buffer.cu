// Bug: with two buffers one barrier a step is enough, but it stands before the store instead of after it.
// Kind: race
__global__ void sum_rows(const float* x, float* y, int columns) {
    __shared__ float staged[2][64];
    float mine = 0;
    for (int step = 0; step * 64 < columns; ++step) {
        int c = step * 64 + threadIdx.x;
        __syncthreads();
        staged[step % 2][threadIdx.x] = c < columns ? x[blockIdx.x * columns + c] : 0;
        if (threadIdx.x == 0)
            for (int i = 0; i < 64; ++i) mine += staged[step % 2][i];  // BUG
    }
    if (threadIdx.x == 0) y[blockIdx.x] = mine;
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    sum_rows<<<x.size(0), 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
