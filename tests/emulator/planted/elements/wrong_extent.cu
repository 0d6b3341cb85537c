// Bug: the kernel gets the number of bytes instead of the number of elements.
// Kind: out-of-bounds read
__global__ void combine(const float* x, const float* y, float* z, size_t n) {
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] + 2 * y[i];  // BUG
}

torch::Tensor forward(torch::Tensor x, torch::Tensor y) {
    auto z = torch::empty_like(x);
    size_t n = x.nbytes();
    combine<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), z.data_ptr<float>(), n);
    return z;
}
