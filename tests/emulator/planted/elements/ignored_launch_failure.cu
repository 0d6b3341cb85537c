// Bug: the block asks for more shared memory than it may have, the launch fails, and nobody looks.
// Kind: failed launch
__global__ void combine(const float* x, const float* y, float* z, int n) {
    extern __shared__ float staged[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    staged[threadIdx.x] = 2 * y[i];
    z[i] = x[i] + staged[threadIdx.x];
}

torch::Tensor forward(torch::Tensor x, torch::Tensor y) {
    auto z = torch::empty_like(x);
    int n = x.numel();
    float *a = x.data_ptr<float>(), *b = y.data_ptr<float>(), *c = z.data_ptr<float>();
    combine<<<(n + 127) / 128, 128, 96 * 1024>>>(a, b, c, n);  // BUG
    return z;
}
