// Bug: the warps' sums are read before all warps have stored theirs.
// Kind: race
__global__ void sum_rows(const float* x, float* y, int columns) {
    __shared__ float sums[4];
    float mine = 0;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) mine += x[blockIdx.x * columns + c];
    for (int offset = 16; offset > 0; offset /= 2) mine += __shfl_xor_sync(0xffffffff, mine, offset);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = mine;
    if (threadIdx.x == 0) {
        float total = 0;
        for (int w = 0; w < 4; ++w) total += sums[w];  // BUG
        y[blockIdx.x] = total;
    }
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    sum_rows<<<x.size(0), 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
