// Philox states in kernels. (torch's header also has its checks of stream captures.)
#pragma once
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/PhiloxUtils.cuh>
