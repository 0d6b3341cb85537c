// Bug: four elements per thread, and nobody writes the elements behind the last four.
// Kind: never written
__global__ void combine(const float4* x, const float4* y, float4* z, int vectors) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= vectors) return;
    float4 a = x[i], b = y[i];
    z[i] = make_float4(a.x + 2 * b.x, a.y + 2 * b.y, a.z + 2 * b.z, a.w + 2 * b.w);
}

torch::Tensor forward(torch::Tensor x, torch::Tensor y) {
    auto z = torch::empty_like(x);
    int vectors = (x.numel() - 1) / 4;
    auto four = [](torch::Tensor& t) { return reinterpret_cast<float4*>(t.data_ptr<float>()); };
    combine<<<(vectors + 127) / 128, 128>>>(four(x), four(y), four(z), vectors);  // BUG
    return z;
}
