// Bug: a block cannot have 1088 threads, so that the launch fails.
// Kind: failed launch
__global__ void combine(const float* x, const float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] + 2 * y[i];
}

torch::Tensor forward(torch::Tensor x, torch::Tensor y) {
    auto z = torch::empty_like(x);
    int n = x.numel(), threads = (n + 31) / 32 * 32 + 64;
    combine<<<1, threads>>>(x.data_ptr<float>(), y.data_ptr<float>(), z.data_ptr<float>(), n);  // BUG
    return z;
}
