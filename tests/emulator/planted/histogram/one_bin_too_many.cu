// Bug: bins are counted from 1, so that the last one lies behind the result.
// Kind: out-of-bounds write
__global__ void histogram(const int* x, int* counts, int n) {
    int bin = threadIdx.x + 1, mine = 0;
    for (int i = 0; i < n; ++i) mine += x[i] == bin - 1;
    counts[bin] = mine;  // BUG
}

torch::Tensor forward(torch::Tensor x) {
    auto counts = torch::zeros({16}, x.options());
    histogram<<<1, 16>>>(x.data_ptr<int>(), counts.data_ptr<int>(), x.numel());
    return counts;
}
