// Bug: the bound lets one thread too many through, which writes past the end of the output.
// Kind: out-of-bounds write
__global__ void combine(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > n) return;
    float sum = i < n ? x[i] + 2 * y[i] : 0.0f;
    z[i] = sum;  // BUG
}

torch::Tensor forward(torch::Tensor x, torch::Tensor y) {
    auto z = torch::empty_like(x);
    int n = x.numel();
    combine<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), z.data_ptr<float>(), n);
    return z;
}
