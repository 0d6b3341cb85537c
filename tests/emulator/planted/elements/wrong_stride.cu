// Bug: each thread steps by the number of blocks instead of the number of threads, and runs past the input.
// Kind: out-of-bounds read
__global__ void combine(const float* x, const float* y, float* z, int n, int per_thread) {
    int first = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < per_thread; ++k) {
        int i = first * per_thread + k * gridDim.x;
        float sum = x[i] + 2 * y[i];  // BUG
        z[i] = sum;
    }
}

torch::Tensor forward(torch::Tensor x, torch::Tensor y) {
    auto z = torch::empty_like(x);
    int n = x.numel(), per_thread = 4;
    TORCH_CHECK(n % (50 * per_thread) == 0, "a multiple of 200 elements only");
    combine<<<n / 50 / per_thread, 50>>>(x.data_ptr<float>(), y.data_ptr<float>(), z.data_ptr<float>(), n, per_thread);
    return z;
}
