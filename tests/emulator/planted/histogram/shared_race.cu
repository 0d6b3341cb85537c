// Bug: the block's own bins in shared memory are counted without atomics.
// Kind: race
__global__ void count(const int* x, int* bins, int n) {
    __shared__ int own[16];
    if (threadIdx.x < 16) own[threadIdx.x] = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) own[x[i]]++;  // BUG
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}

torch::Tensor forward(torch::Tensor x) {
    auto bins = torch::zeros({16}, x.options());
    int n = x.numel();
    count<<<(n + 255) / 256, 256>>>(x.data_ptr<int>(), bins.data_ptr<int>(), n);
    return bins;
}
