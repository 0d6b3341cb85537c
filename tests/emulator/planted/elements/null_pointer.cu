// Bug: the workspace is never allocated, and the kernel follows its null pointer.
// Kind: out-of-bounds write
__global__ void combine(const float* x, const float* y, float* twice, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    twice[i] = 2 * y[i];  // BUG
    z[i] = x[i] + twice[i];
}

torch::Tensor forward(torch::Tensor x, torch::Tensor y) {
    auto z = torch::empty_like(x);
    int n = x.numel();
    combine<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), nullptr, z.data_ptr<float>(), n);
    return z;
}
