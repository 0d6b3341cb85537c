// Bug: the lower half of the warp reads from the upper half, which the mask does not name.
// Kind: absent lane
__global__ void sum_rows(const float* x, float* y, int columns) {
    float mine = 0;
    for (int c = threadIdx.x; c < columns; c += 32) mine += x[blockIdx.x * columns + c];
    mine += __shfl_xor_sync(0xffffffff, mine, 16);
    if (threadIdx.x < 16)
        for (int step = 16; step > 0; step /= 2)
            mine += __shfl_down_sync(0x0000ffff, mine, step);  // BUG
    if (threadIdx.x == 0) y[blockIdx.x] = mine;
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    sum_rows<<<x.size(0), 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
