// Bug: rows of 70 floats are read as float4, and every second row begins at a multiple of eight bytes only.
// Kind: misaligned access
__global__ void transpose(const float* x, float* y, int rows, int columns) {
    int r = blockIdx.y, c = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (c + 3 < columns) {
        float4 four = *reinterpret_cast<const float4*>(&x[r * columns + c]);  // BUG
        y[c * rows + r] = four.x, y[(c + 1) * rows + r] = four.y, y[(c + 2) * rows + r] = four.z, y[(c + 3) * rows + r] = four.w;
    } else {
        for (; c < columns; ++c) y[c * rows + r] = x[r * columns + c];
    }
}

torch::Tensor forward(torch::Tensor x) {
    int rows = x.size(0), columns = x.size(1);
    auto y = torch::empty({columns, rows}, x.options());
    transpose<<<dim3((columns + 127) / 128, rows), 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), rows, columns);
    return y;
}
