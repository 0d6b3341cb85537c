// Bug: the values are sorted into slots taken in order of arrival, so that the output hangs on the order.
// Kind: order dependence
__global__ void collect(const int* x, int* slots, int* taken, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) slots[atomicAdd(taken, 1)] = x[i];  // BUG
}

torch::Tensor forward(torch::Tensor x) {
    auto slots = torch::empty_like(x), taken = torch::zeros({1}, x.options());
    int n = x.numel();
    collect<<<(n + 255) / 256, 256>>>(x.data_ptr<int>(), slots.data_ptr<int>(), taken.data_ptr<int>(), n);
    return slots;
}
