"""cuRAND's generators at far places of their sequences: integers, normal numbers and doubles, against NVIDIA's own."""

import torch

CPP = "std::vector<torch::Tensor> random_streams(int64_t seed);"
CUDA = r"""
#include <torch/extension.h>
#include <curand_kernel.h>

template <typename State>
__global__ void streams_kernel(int64_t* integers, double* others, unsigned long long seed) {
    const int i = threadIdx.x;
    State state;
    curand_init(seed, i * 1000000007ULL, 5 * i, &state);
    for (int k = 0; k < 3; ++k) integers[i * 3 + k] = curand(&state);
    for (int k = 0; k < 2; ++k) others[i * 3 + k] = curand_normal(&state);
    others[i * 3 + 2] = curand_uniform_double(&state);
}

std::vector<torch::Tensor> random_streams(int64_t seed) {
    auto integers = torch::empty({6, 3}, torch::dtype(torch::kLong).device(torch::kCUDA));
    auto others = torch::empty({6, 3}, torch::dtype(torch::kDouble).device(torch::kCUDA));
    streams_kernel<curandStateXORWOW_t><<<1, 3>>>(integers.data_ptr<int64_t>(), others.data_ptr<double>(), seed);
    streams_kernel<curandStatePhilox4_32_10_t><<<1, 3>>>(integers.data_ptr<int64_t>() + 9, others.data_ptr<double>() + 9, seed);
    return {integers, others};
}
"""
TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}


def cases():
    return [(1234567890123,)]


def answer(seed):
    """What the same calls give with curand_kernel.h of CUDA 13.0, compiled for the host."""
    numbers = [
        [789125713, 3156383114, 1106748476, 1.36486673, 0.822604299, 0.12650675172692599],
        [2234956532, 1534547839, 1304694328, 1.25938284, -0.593014657, 0.17467468596936025],
        [2426832285, 2226193232, 653314051, 0.125131086, 0.276121616, 0.9200054940878799],
        [1158483830, 1944096801, 1539648582, -0.00317899324, -0.387548655, 0.78657396859489381],
        [1490893715, 4055847170, 2970289257, -0.317535043, -0.722513139, 0.79890891839750111],
        [1609427300, 2982887182, 540425467, 0.595544636, -0.286608964, 0.44251387938857079],
    ]
    table = torch.tensor(numbers, dtype=torch.float64)
    return [table[:, :3].long(), table[:, 3:]]
