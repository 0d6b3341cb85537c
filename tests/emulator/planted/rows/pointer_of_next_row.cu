// Bug: rows are counted from 1, so that the last block reads a row behind the matrix.
// Kind: out-of-bounds read
__global__ void sum_rows(const float* x, float* y, int columns) {
    const float* row = x + (blockIdx.x + 1) * columns;
    float mine = 0;
    for (int c = threadIdx.x; c < columns; c += 32) mine += row[c];  // BUG
    for (int offset = 16; offset > 0; offset /= 2) mine += __shfl_xor_sync(0xffffffff, mine, offset);
    if (threadIdx.x == 0) y[blockIdx.x] = mine;
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    sum_rows<<<x.size(0), 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
