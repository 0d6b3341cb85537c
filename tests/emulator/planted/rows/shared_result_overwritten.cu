// Bug: a block sums several rows, and the next row's parts are stored while thread 0 still adds the last ones.
// Kind: race
__global__ void sum_rows(const float* x, float* y, int rows, int columns) {
    __shared__ float part[64];
    for (int r = blockIdx.x; r < rows; r += gridDim.x) {
        float mine = 0;
        for (int c = threadIdx.x; c < columns; c += blockDim.x) mine += x[r * columns + c];
        part[threadIdx.x] = mine;
        __syncthreads();
        if (threadIdx.x == 0) {
            float total = 0;
            for (int i = 0; i < 64; ++i) total += part[i];  // BUG
            y[r] = total;
        }
    }
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    sum_rows<<<2, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(0), x.size(1));
    return y;
}
