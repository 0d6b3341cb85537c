// Bug: threads count into device memory without atomics.
// Kind: race
__global__ void count(const int* x, int* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) bins[x[i]] += 1;  // BUG
}

torch::Tensor forward(torch::Tensor x) {
    auto bins = torch::zeros({16}, x.options());
    int n = x.numel();
    count<<<(n + 255) / 256, 256>>>(x.data_ptr<int>(), bins.data_ptr<int>(), n);
    return bins;
}
