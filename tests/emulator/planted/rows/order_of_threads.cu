// Bug: each thread halves the sum before it adds its part, so that the result hangs on who comes when.
// Kind: order dependence
__global__ void sum_rows(const float* x, float* y, int columns) {
    float* sum = y + blockIdx.x;
    float part = 0;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) part += x[blockIdx.x * columns + c];
    unsigned* bits = reinterpret_cast<unsigned*>(sum);
    unsigned before = atomicAdd(bits, 0u), seen;
    do {
        seen = before;
        float next = 0.5f * reinterpret_cast<float&>(seen) + part;
        before = atomicCAS(bits, seen, reinterpret_cast<unsigned&>(next));  // BUG
    } while (before != seen);
}

torch::Tensor forward(torch::Tensor x) {
    auto y = torch::zeros({x.size(0)}, x.options());
    sum_rows<<<x.size(0), 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
