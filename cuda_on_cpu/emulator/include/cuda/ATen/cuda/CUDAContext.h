// PyTorch's stream and its cuBLAS handle.
#pragma once
#include <ATen/cuda/CUDAContextLight.h>

#include <ATen/Context.h>
#include <ATen/cuda/Exceptions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Logging.h>
