// Bug: the counts in shared memory are not set to zero first.
// Kind: uninitialised read
__global__ void histogram(const int* x, int* counts, int n, int bins) {
    __shared__ int own[16];
    __syncthreads();
    for (int b = 0; b < bins; ++b) {
        int mine = 0;
        for (int i = threadIdx.x; i < n; i += 32) mine += x[i] == b;
        for (int offset = 16; offset > 0; offset /= 2) mine += __shfl_xor_sync(0xffffffff, mine, offset);
        if (threadIdx.x == 0) own[b] += mine;  // BUG
    }
    __syncwarp();
    if (threadIdx.x < bins) counts[threadIdx.x] = own[threadIdx.x];
}

torch::Tensor forward(torch::Tensor x) {
    auto counts = torch::empty({16}, x.options());
    histogram<<<1, 32>>>(x.data_ptr<int>(), counts.data_ptr<int>(), x.numel(), 16);
    return counts;
}
