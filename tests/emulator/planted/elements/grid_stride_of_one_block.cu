// Bug: the loop's step leaves out the number of blocks, so that blocks add to each other's elements.
// Kind: race
__global__ void combine(const float* x, const float* y, float* z, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x) {
        z[i] += x[i] + 2 * y[i];  // BUG
    }
}

torch::Tensor forward(torch::Tensor x, torch::Tensor y) {
    auto z = torch::zeros_like(x);
    combine<<<4, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), z.data_ptr<float>(), x.numel());
    return z;
}
