// Bug: the last block adds the blocks' counts without waiting until all other blocks have stored theirs.
// Kind: race
__global__ void histogram(const int* x, int* partial, int* counts, int n) {
    int bin = threadIdx.x, mine = 0;
    for (int i = blockIdx.x; i < n; i += gridDim.x) mine += x[i] == bin;
    partial[blockIdx.x * 16 + bin] = mine;
    if (blockIdx.x == gridDim.x - 1) {
        int sum = 0;
        for (int b = 0; b < gridDim.x; ++b) sum += partial[b * 16 + bin];  // BUG
        counts[bin] = sum;
    }
}

torch::Tensor forward(torch::Tensor x) {
    auto counts = torch::empty({16}, x.options()), partial = torch::empty({4 * 16}, x.options());
    histogram<<<4, 16>>>(x.data_ptr<int>(), partial.data_ptr<int>(), counts.data_ptr<int>(), x.numel());
    return counts;
}
