// Bug: the launch gives one float of shared memory to each column, and the kernel pads the row to a multiple of 64.
// Kind: out-of-bounds write
__global__ void sum_rows(const float* x, float* y, int columns) {
    extern __shared__ float staged[];
    int padded = (columns + 63) / 64 * 64;
    for (int c = threadIdx.x; c < padded; c += blockDim.x)
        staged[c] = c < columns ? x[blockIdx.x * columns + c] : 0;  // BUG
    __syncthreads();
    if (threadIdx.x > 0) return;
    float sum = 0;
    for (int c = 0; c < columns; ++c) sum += staged[c];
    y[blockIdx.x] = sum;
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    int columns = x.size(1);
    sum_rows<<<x.size(0), 64, columns * sizeof(float)>>>(x.data_ptr<float>(), y.data_ptr<float>(), columns);
    return y;
}
