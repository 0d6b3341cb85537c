// Bug: threads outside the matrix skip the barrier that the others wait at.
// Kind: divergent barrier
__global__ void transpose(const float* x, float* y, int rows, int columns) {
    __shared__ float tile[16][17];
    int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
    if (r < rows && c < columns) {
        tile[threadIdx.y][threadIdx.x] = x[r * columns + c];
        __syncthreads();  // BUG
    }
    int to_r = blockIdx.x * 16 + threadIdx.y, to_c = blockIdx.y * 16 + threadIdx.x;
    if (to_r < columns && to_c < rows) y[to_r * rows + to_c] = tile[threadIdx.x][threadIdx.y];
}

torch::Tensor forward(torch::Tensor x) {
    int rows = x.size(0), columns = x.size(1);
    auto y = torch::empty({columns, rows}, x.options());
    dim3 grid((columns + 15) / 16, (rows + 15) / 16);
    transpose<<<grid, dim3(16, 16)>>>(x.data_ptr<float>(), y.data_ptr<float>(), rows, columns);
    return y;
}
