// Bug: only three of four warps store their sum, and thread 0 adds four.
// Kind: uninitialised read
__global__ void sum_rows(const float* x, float* y, int columns) {
    __shared__ float sums[4];
    float mine = 0;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) mine += x[blockIdx.x * columns + c];
    for (int offset = 16; offset > 0; offset /= 2) mine += __shfl_xor_sync(0xffffffff, mine, offset);
    int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0 && warp < blockDim.x / 32 - 1) sums[warp] = mine;
    __syncthreads();
    if (threadIdx.x == 0) y[blockIdx.x] = sums[0] + sums[1] + sums[2] + sums[3];  // BUG
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    sum_rows<<<x.size(0), 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
