// Bug: the second stream does not wait for the first one.
// Kind: race
__global__ void add_elements(const float* x, const float* y, float* z, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = x[i] + y[i];
}
__global__ void copy_elements(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];  // BUG
}

torch::Tensor forward(torch::Tensor x, torch::Tensor y) {
    auto between = torch::zeros_like(x), z = torch::empty_like(x);
    const int n = x.numel();
    cudaStream_t first, second;
    cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
    add_elements<<<(n + 255) / 256, 256, 0, first>>>(x.data_ptr<float>(), y.data_ptr<float>(), between.data_ptr<float>(), n);
    copy_elements<<<(n + 255) / 256, 256, 0, second>>>(between.data_ptr<float>(), z.data_ptr<float>(), n);
    cudaDeviceSynchronize();
    cudaStreamDestroy(first), cudaStreamDestroy(second);
    return z;
}
