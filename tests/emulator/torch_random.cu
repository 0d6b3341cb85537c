// Functions of an extension that takes the seeds of its kernels from torch's generators.
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraphsUtils.cuh>
#include <curand_kernel.h>
#include <torch/extension.h>

#include <mutex>

__global__ void uniform_kernel(float* x, int n, at::PhiloxCudaState philox) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    auto [seed, offset] = at::cuda::philox::unpack(philox);
    curandStatePhilox4_32_10_t state;
    curand_init(seed, i, offset, &state);
    x[i] = curand_uniform(&state);
}

torch::Tensor uniform(int64_t n, std::optional<at::Generator> given) {
    auto x = torch::empty({n}, torch::dtype(torch::kFloat32).device(torch::kCUDA));
    auto generator = at::get_generator_or_default<at::CUDAGeneratorImpl>(given, at::cuda::detail::getDefaultCUDAGenerator());
    at::PhiloxCudaState philox;
    {
        std::lock_guard<std::mutex> lock(generator->mutex_);
        philox = generator->philox_cuda_state(4);
    }
    uniform_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), n, philox);
    return x;
}
