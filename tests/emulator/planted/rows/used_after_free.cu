// Bug: the workspace is freed between the kernel that fills it and the one that reads it.
// Kind: use after free
struct Rows {
    float* sums;
    int count;
};

__global__ void sum_rows(const float* x, Rows rows, int columns) {
    float sum = 0;
    for (int c = 0; c < columns; ++c) sum += x[threadIdx.x * columns + c];
    rows.sums[threadIdx.x] = sum;
}

__global__ void copy(Rows rows, float* y) {
    if (threadIdx.x < rows.count) y[threadIdx.x] = rows.sums[threadIdx.x];  // BUG
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    Rows rows{nullptr, static_cast<int>(x.size(0))};
    cudaMalloc(&rows.sums, rows.count * sizeof(float));
    sum_rows<<<1, rows.count>>>(x.data_ptr<float>(), rows, x.size(1));
    cudaFree(rows.sums);
    copy<<<1, 64>>>(rows, y.data_ptr<float>());
    return y;
}
