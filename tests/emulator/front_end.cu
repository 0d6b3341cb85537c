// The C++ front end, which the light headers do not contain.
#include <torch/extension.h>

static __global__ void add_one_kernel(float* x, int n) {
    const int i = threadIdx.x;
    if (i < n) x[i] += 1;
}

torch::Tensor relu_plus_one(torch::Tensor x) {
    auto out = torch::nn::functional::relu(x);
    add_one_kernel<<<1, 32>>>(out.data_ptr<float>(), static_cast<int>(out.numel()));
    return out;
}
