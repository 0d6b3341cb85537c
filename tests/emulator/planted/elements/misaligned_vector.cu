// Bug: the vectors begin at the second element, which is not aligned as a float4 must be.
// Kind: misaligned access
__device__ float4 plus(float4 a, float4 b) { return make_float4(a.x + 2 * b.x, a.y + 2 * b.y, a.z + 2 * b.z, a.w + 2 * b.w); }

__global__ void combine(const float* x, const float* y, float* z, int n) {
    int i = 1 + 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    if (i == 1) z[0] = x[0] + 2 * y[0];
    if (i + 3 < n) {
        const float4 a = *reinterpret_cast<const float4*>(x + i);  // BUG
        const float4 b = *reinterpret_cast<const float4*>(y + i);
        *reinterpret_cast<float4*>(z + i) = plus(a, b);
    } else {
        for (; i < n; ++i) z[i] = x[i] + 2 * y[i];
    }
}

torch::Tensor forward(torch::Tensor x, torch::Tensor y) {
    auto z = torch::empty_like(x);
    int n = x.numel();
    combine<<<n / 512 + 1, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), z.data_ptr<float>(), n);
    return z;
}
