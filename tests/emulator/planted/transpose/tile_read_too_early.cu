// Bug: the tile is read across threads without a barrier after it was filled.
// Kind: race
__global__ void transpose(const float* x, float* out, int rows, int columns) {
    __shared__ float tile[16][17];
    int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = r < rows && c < columns ? x[r * columns + c] : 0;
    int to_row = blockIdx.x * 16 + threadIdx.y, to_column = blockIdx.y * 16 + threadIdx.x;
    float value = tile[threadIdx.x][threadIdx.y];  // BUG
    if (to_row < columns && to_column < rows) out[to_row * rows + to_column] = value;
}

torch::Tensor forward(torch::Tensor x) {
    int rows = x.size(0), columns = x.size(1);
    auto out = torch::empty({columns, rows}, x.options());
    dim3 grid((columns + 15) / 16, (rows + 15) / 16);
    transpose<<<grid, dim3(16, 16)>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, columns);
    return out;
}
