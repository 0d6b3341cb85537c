// Bug: the assertion holds for full blocks only.
// Kind: trap
__global__ void add_elements(const float* x, const float* y, float* z, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(i < n);  // BUG
    z[i] = x[i] + y[i];
}

torch::Tensor forward(torch::Tensor x, torch::Tensor y) {
    auto z = torch::empty_like(x);
    const int n = x.numel();
    add_elements<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), z.data_ptr<float>(), n);
    return z;
}
