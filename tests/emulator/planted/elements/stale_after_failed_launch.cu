// Bug: blocks of 2048 threads do not exist; the second kernel works on what the first never made.
// Kind: failed launch
__global__ void twice(const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2 * y[i];
}

__global__ void add(const float* x, float* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] += x[i];
}

torch::Tensor forward(torch::Tensor x, torch::Tensor y) {
    auto z = torch::zeros_like(x);
    int n = x.numel();
    twice<<<1, 2048>>>(y.data_ptr<float>(), z.data_ptr<float>(), n);  // BUG
    add<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), z.data_ptr<float>(), n);
    return z;
}
