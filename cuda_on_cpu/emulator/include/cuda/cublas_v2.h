// The level 3 functions of cuBLAS. They check their arguments as cuBLAS does.
// As in CUDA, this header includes the types of 16-bit numbers.
#pragma once
#define CUBLAS_API_H_
#include <cuda_bf16.h>

#include "emulator/cublas.h"
