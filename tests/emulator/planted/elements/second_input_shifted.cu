// Bug: the offset of a block is added to the pointer and to the index.
// Kind: out-of-bounds read
__global__ void combine(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float* part = y + blockIdx.x * blockDim.x;
    if (i < n) z[i] = x[i] + 2 * part[i];  // BUG
}

torch::Tensor forward(torch::Tensor x, torch::Tensor y) {
    auto z = torch::empty_like(x);
    int n = x.numel();
    combine<<<(n + 63) / 64, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), z.data_ptr<float>(), n);
    return z;
}
