// Bug: the sum is made in place in a copy of x, from whose right neighbour each element takes, too; a block may
// find its neighbour's elements before or after they were changed.
// Kind: race
__global__ void combine(float* z, const float* y, int n) {
    __shared__ float right[129];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) right[threadIdx.x] = z[i];
    if (threadIdx.x == 127 && i + 1 < n) right[128] = z[i + 1];  // BUG
    __syncthreads();
    if (i < n) z[i] = right[threadIdx.x] + 2 * y[i] + (i + 1 < n ? 0 * right[threadIdx.x + 1] : 0);
}

torch::Tensor forward(torch::Tensor x, torch::Tensor y) {
    auto z = x.clone();
    int n = x.numel();
    combine<<<(n + 127) / 128, 128>>>(z.data_ptr<float>(), y.data_ptr<float>(), n);
    return z;
}
