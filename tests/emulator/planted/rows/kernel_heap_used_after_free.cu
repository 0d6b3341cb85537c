// Bug: the first thread frees the memory of the block and reads it again.
// Kind: use after free
__global__ void sum_rows(const float* x, float* y, int columns) {
    __shared__ float* parts;
    if (threadIdx.x == 0) parts = static_cast<float*>(malloc(32 * sizeof(float)));
    __syncthreads();
    float part = 0;
    for (int c = threadIdx.x; c < columns; c += 32) part += x[blockIdx.x * columns + c];
    parts[threadIdx.x] = part;
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0;
        for (int i = 0; i < 32; ++i) sum += parts[i];
        free(parts);
        y[blockIdx.x] = sum + 0 * parts[0];  // BUG
    }
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::zeros({x.size(0)}, x.options());
    sum_rows<<<x.size(0), 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
