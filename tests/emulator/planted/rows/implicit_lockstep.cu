// Bug: the last warp adds without __syncwarp, as if its lanes ran in lockstep.
// Kind: race
__global__ void sum_rows(const float* x, float* y, int columns) {
    __shared__ float part[32];
    float mine = 0;
    for (int c = threadIdx.x; c < columns; c += 32) mine += x[blockIdx.x * columns + c];
    part[threadIdx.x] = mine;
    __syncwarp();
    for (int half = 16; half > 0; half /= 2)
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];  // BUG
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    sum_rows<<<x.size(0), 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
