// Bug: the number of vectors is rounded up, so that the last vector ends behind the tensors.
// Kind: out-of-bounds read
__global__ void combine(const float2* x, const float2* y, float2* z, int vectors) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= vectors) return;
    float2 a = x[i], b = y[i];  // BUG
    z[i] = make_float2(a.x + 2 * b.x, a.y + 2 * b.y);
}

torch::Tensor forward(torch::Tensor x, torch::Tensor y) {
    auto z = torch::empty_like(x);
    int vectors = x.numel() / 2 + 1;
    auto two = [](torch::Tensor& t) { return reinterpret_cast<float2*>(t.data_ptr<float>()); };
    combine<<<(vectors + 63) / 64, 64>>>(two(x), two(y), two(z), vectors);
    return z;
}
