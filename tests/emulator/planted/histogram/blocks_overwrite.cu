// Bug: every block stores its bins over those of the others instead of adding them.
// Kind: race
__global__ void count(const int* x, int* bins, int n) {
    __shared__ int own[16];
    if (threadIdx.x < 16) own[threadIdx.x] = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&own[x[i]], 1);
    __syncthreads();
    if (threadIdx.x < 16) bins[threadIdx.x] = own[threadIdx.x];  // BUG
}

torch::Tensor forward(torch::Tensor x) {
    auto bins = torch::empty({16}, x.options());
    int n = x.numel();
    count<<<(n + 255) / 256, 256>>>(x.data_ptr<int>(), bins.data_ptr<int>(), n);
    return bins;
}
