// Bug: the grid has as many blocks along x as along y, so that the last columns get no block.
// Kind: never written
__global__ void transpose(const float* x, float* y, int rows, int columns) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r < rows && c < columns) y[c * rows + r] = x[r * columns + c];
}

torch::Tensor forward(torch::Tensor x) {
    int rows = x.size(0), columns = x.size(1);
    auto y = torch::empty({columns, rows}, x.options());
    transpose<<<dim3((rows + 15) / 16, (rows + 15) / 16), dim3(16, 16)>>>(x.data_ptr<float>(), y.data_ptr<float>(), rows, columns);  // BUG
    return y;
}
