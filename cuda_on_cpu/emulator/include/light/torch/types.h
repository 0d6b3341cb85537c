// Replaces torch/types.h by tensors and their operators. torch's own header also has autograd and TORCH_LIBRARY: a
// source that needs these parts is compiled with it.
#pragma once
#include <ATen/ATen.h>

#include "cuda_on_cpu/torch_names.h"
