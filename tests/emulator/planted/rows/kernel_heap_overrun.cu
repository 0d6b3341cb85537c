// Bug: each block writes one element past the memory that its kernel allocated.
// Kind: out-of-bounds write
__global__ void sum_rows(const float* x, float* y, int columns) {
    __shared__ float* parts;
    if (threadIdx.x == 0) parts = static_cast<float*>(malloc(32 * sizeof(float)));
    __syncthreads();
    float part = 0;
    for (int c = threadIdx.x; c < columns; c += 32) part += x[blockIdx.x * columns + c];
    parts[threadIdx.x + 1] = part;  // BUG
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0;
        for (int i = 0; i < 32; ++i) sum += parts[i];
        y[blockIdx.x] = sum;
        free(parts);
    }
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::zeros({x.size(0)}, x.options());
    sum_rows<<<x.size(0), 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
