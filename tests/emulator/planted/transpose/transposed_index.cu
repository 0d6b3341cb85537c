// Bug: row and column are swapped where the input is read, which leaves it where it is not square.
// Kind: out-of-bounds read
__global__ void transpose(const float* x, float* out, int rows, int columns) {
    int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
    if (r >= rows || c >= columns) return;
    float value = x[c * columns + r];  // BUG
    out[c * rows + r] = value;
}

torch::Tensor forward(torch::Tensor x) {
    int rows = x.size(0), columns = x.size(1);
    auto out = torch::zeros({columns, rows}, x.options());
    dim3 grid((columns + 15) / 16, (rows + 15) / 16);
    transpose<<<grid, dim3(16, 16)>>>(x.data_ptr<float>(), out.data_ptr<float>(), rows, columns);
    return out;
}
