// Bug: the first thread reads the element before the first one.
// Kind: out-of-bounds read
__global__ void combine(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float left = x[i - 1];  // BUG
    z[i] = i == 0 || left >= 0 ? x[i] + 2 * y[i] : 0;
}

torch::Tensor forward(torch::Tensor x, torch::Tensor y) {
    auto z = torch::empty_like(x);
    int n = x.numel();
    combine<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), z.data_ptr<float>(), n);
    return z;
}
