// Checks of CUDA and cuBLAS calls. A failure becomes a C++ exception.
#pragma once
#include <ATen/Context.h>
#include <c10/cuda/CUDAException.h>
#include <cublas_v2.h>

#define AT_CUDA_CHECK(EXPR) C10_CUDA_CHECK(EXPR)
#define TORCH_CUDABLAS_CHECK(EXPR)                                                                                     \
  do {                                                                                                                 \
    const cublasStatus_t emulator_status = (EXPR);                                                                     \
    TORCH_CHECK(emulator_status == CUBLAS_STATUS_SUCCESS, "CUDA error: ", cublasGetStatusName(emulator_status),        \
                " when calling `" #EXPR "`");                                                                          \
  } while (false)
