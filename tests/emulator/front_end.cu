// The C++ front end, and other names that the light headers leave out or that mean something else with them.
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

torch::Tensor literals() { return torch::tensor({1.5, 2.5}); }

torch::Tensor with_grad() { return torch::zeros({2}, torch::TensorOptions().requires_grad(true)); }

torch::Tensor first_two(torch::Tensor x) { return x.index({torch::indexing::Slice(0, 2)}); }

torch::Tensor joined(torch::Tensor x) { return torch::cat({x, x}); }

bool on_a_device(torch::Tensor x) { return at::device_of(x).has_value(); }
