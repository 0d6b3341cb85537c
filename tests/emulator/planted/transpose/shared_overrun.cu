// Bug: the tile has 16 rows, and 17 are filled.
// Kind: out-of-bounds write
__global__ void transpose(const float* x, float* out, int rows, int columns) {
    __shared__ float tile[16][33];
    __shared__ int first;
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 16;
    if (threadIdx.x == 0) first = r;
    for (int i = 0; i <= 16; ++i)
        if (r + i < rows && c < columns) tile[i][threadIdx.x] = x[(r + i) * columns + c];  // BUG
    __syncthreads();
    for (int i = 0; i < 16; ++i)
        if (first + i < rows && c < columns) out[c * rows + first + i] = tile[i][threadIdx.x];
}

torch::Tensor forward(torch::Tensor x) {
    int rows = x.size(0), columns = x.size(1);
    auto out = torch::empty({columns, rows}, x.options());
    dim3 grid((columns + 31) / 32, (rows + 15) / 16);
    transpose<<<grid, 32>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, columns);
    return out;
}
