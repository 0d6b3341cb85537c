// Bug: the elements are visited in a scattered order whose index is worked out in 32 bits, and overflows.
// Kind: out-of-bounds read
__global__ void combine(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int scattered = i * 7654321 % n;
    float sum = x[scattered] + 2 * y[scattered];  // BUG
    z[scattered] = sum;
}

torch::Tensor forward(torch::Tensor x, torch::Tensor y) {
    auto z = torch::empty_like(x);
    int n = x.numel();
    combine<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), z.data_ptr<float>(), n);
    return z;
}
