// The C++ primitives for cp.async.
// https://docs.nvidia.com/cuda/cuda-c-programming-guide/#pipeline-primitives-interface
#pragma once
#include <cuda_pipeline_primitives.h>
