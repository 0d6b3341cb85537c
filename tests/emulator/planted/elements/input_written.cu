// Bug: an intermediate result goes into an input, whose const the host code casts away.
// Kind: write to an input
__global__ void combine(const float* x, float* y, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = 2 * y[i];  // BUG
    z[i] = x[i] + y[i];
}

torch::Tensor forward(torch::Tensor x, torch::Tensor y) {
    auto z = torch::empty_like(x);
    int n = x.numel();
    auto* b = const_cast<float*>(y.const_data_ptr<float>());
    combine<<<(n + 127) / 128, 128>>>(x.const_data_ptr<float>(), b, z.mutable_data_ptr<float>(), n);
    return z;
}
