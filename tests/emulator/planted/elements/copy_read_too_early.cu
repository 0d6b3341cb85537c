// Bug: the host reads pinned memory before it waits for the copy.
// Kind: access before a wait
__global__ void add_elements(const float* x, const float* y, float* z, float scale, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = scale * x[i] + y[i];
}

torch::Tensor forward(torch::Tensor x, torch::Tensor y) {
    auto z = torch::empty_like(x);
    static float* host = nullptr;
    if (!host) cudaMallocHost(&host, sizeof(float));
    const int n = x.numel();
    cudaMemcpyAsync(host, x.data_ptr<float>(), sizeof(float), cudaMemcpyDeviceToHost, nullptr);
    const float scale = *host;  // BUG
    cudaStreamSynchronize(nullptr);
    add_elements<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), z.data_ptr<float>(), scale, n);
    return z;
}
