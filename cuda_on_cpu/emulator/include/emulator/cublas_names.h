// The public functions of cuBLAS. They are inline and hidden, so an extension never calls a real cuBLAS in the process.
#pragma once
#include "emulator/cublas.h"

#pragma GCC visibility push(hidden)
inline cublasStatus_t cublasCreate(cublasHandle_t* handle) { return emulator::cublas_create(handle); }
inline cublasStatus_t cublasDestroy(cublasHandle_t handle) { return emulator::cublas_destroy(handle); }
inline const char* cublasGetStatusName(cublasStatus_t status) { return emulator::cublas_status_name(status); }
inline const char* cublasGetStatusString(cublasStatus_t status) { return emulator::cublas_status_name(status); }
inline cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) { return emulator::cublas_set_stream(handle, stream); }
inline cublasStatus_t cublasGetStream(cublasHandle_t handle, cudaStream_t* stream) { return emulator::cublas_get_stream(handle, stream); }
inline cublasStatus_t cublasGetVersion(cublasHandle_t handle, int* version) { *version = 130000; return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED; }
// In the mode CUBLAS_TF32_TENSOR_OP_MATH, and in the older mode CUBLAS_TENSOR_OP_MATH, float32 operands are rounded.
inline cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) { return emulator::cublas_set_mode(handle, mode); }
inline cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  int number = 0;
  const cublasStatus_t status = emulator::cublas_get_mode(handle, &number);
  *mode = static_cast<cublasMath_t>(number);
  return status;
}
// The mode has no effect, because scalars in device memory and in host memory are read in the same way.
inline cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t) { return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED; }
inline cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t) { return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED; }
inline cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void*, std::size_t) { return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED; }

#define EMULATOR_GEMM(LETTER, T, TYPE, COMPUTE)                                                                              \
  inline cublasStatus_t cublas##LETTER##gemm(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const T* alpha, \
                                             const T* a, int lda, const T* b, int ldb, const T* beta, T* c, int ldc) {       \
    return emulator::gemm(handle, {ta, tb, m, n, k, alpha, {a, TYPE, lda}, {b, TYPE, ldb}, beta, {c, TYPE, ldc}, COMPUTE});   \
  }                                                                                                                          \
  inline cublasStatus_t cublas##LETTER##gemmStridedBatched(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const T* alpha, \
                                                           const T* a, int lda, long long stride_a, const T* b, int ldb, long long stride_b, const T* beta, T* c,  \
                                                           int ldc, long long stride_c, int count) {                         \
    return emulator::gemm(handle, {ta, tb, m, n, k, alpha, {a, TYPE, lda}, {b, TYPE, ldb}, beta, {c, TYPE, ldc}, COMPUTE}, {count, stride_a, stride_b, stride_c}); \
  }                                                                                                                          \
  inline cublasStatus_t cublas##LETTER##gemmBatched(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const T* alpha, \
                                                    const T* const a[], int lda, const T* const b[], int ldb, const T* beta, T* const c[], int ldc, int count) { \
    return emulator::gemm(handle, {ta, tb, m, n, k, alpha, {nullptr, TYPE, lda}, {nullptr, TYPE, ldb}, beta, {nullptr, TYPE, ldc}, COMPUTE},               \
                          {count, 0, 0, 0, reinterpret_cast<const void* const*>(a), reinterpret_cast<const void* const*>(b), reinterpret_cast<const void* const*>(c)}); \
  }
EMULATOR_GEMM(S, float, CUDA_R_32F, CUBLAS_COMPUTE_32F)
EMULATOR_GEMM(D, double, CUDA_R_64F, CUBLAS_COMPUTE_64F)
EMULATOR_GEMM(H, __half, CUDA_R_16F, CUBLAS_COMPUTE_16F)
#undef EMULATOR_GEMM

namespace emulator {
// Returns the compute type of a product. The older algorithm for tensor cores allows products of rounded float32
// operands. https://docs.nvidia.com/cuda/cublas/#cublasgemmalgo-t
inline cublasComputeType_t compute_type(cublasComputeType_t type, cublasGemmAlgo_t algorithm, cudaDataType operand) {
  const bool rounded = operand == CUDA_R_32F && type == CUBLAS_COMPUTE_32F && algorithm >= CUBLAS_GEMM_DEFAULT_TENSOR_OP;
  return rounded ? CUBLAS_COMPUTE_32F_FAST_16F : type;
}
}  // namespace emulator

inline cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void* alpha, const void* a,
                                   cudaDataType a_type, int lda, const void* b, cudaDataType b_type, int ldb, const void* beta, void* c, cudaDataType c_type,
                                   int ldc, cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  return emulator::gemm(handle, {ta, tb, m, n, k, alpha, {a, a_type, lda}, {b, b_type, ldb}, beta, {c, c_type, ldc}, emulator::compute_type(compute, algorithm, a_type)});
}
inline cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void* alpha, const void* a,
                                                 cudaDataType a_type, int lda, long long stride_a, const void* b, cudaDataType b_type, int ldb, long long stride_b,
                                                 const void* beta, void* c, cudaDataType c_type, int ldc, long long stride_c, int count, cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  return emulator::gemm(handle, {ta, tb, m, n, k, alpha, {a, a_type, lda}, {b, b_type, ldb}, beta, {c, c_type, ldc}, emulator::compute_type(compute, algorithm, a_type)}, {count, stride_a, stride_b, stride_c});
}
inline cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const void* alpha, const void* const a[],
                                          cudaDataType a_type, int lda, const void* const b[], cudaDataType b_type, int ldb, const void* beta, void* const c[],
                                          cudaDataType c_type, int ldc, int count, cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
  return emulator::gemm(handle, {ta, tb, m, n, k, alpha, {nullptr, a_type, lda}, {nullptr, b_type, ldb}, beta, {nullptr, c_type, ldc}, emulator::compute_type(compute, algorithm, a_type)}, {count, 0, 0, 0, a, b, c});
}
inline cublasStatus_t cublasSgemmEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const float* alpha, const void* a,
                                    cudaDataType a_type, int lda, const void* b, cudaDataType b_type, int ldb, const float* beta, void* c, cudaDataType c_type, int ldc) {
  return emulator::gemm(handle, {ta, tb, m, n, k, alpha, {a, a_type, lda}, {b, b_type, ldb}, beta, {c, c_type, ldc}, CUBLAS_COMPUTE_32F});
}

#define EMULATOR_LEVEL_3(LETTER, T, TYPE, COMPUTE)                                                                                              \
  inline cublasStatus_t cublas##LETTER##geam(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, const T* alpha, const T* a, int lda, const T* beta, \
                                             const T* b, int ldb, T* c, int ldc) {                                                              \
    return emulator::geam(handle, {ta, tb, m, n, 0, alpha, {a, TYPE, lda}, {b, TYPE, ldb}, beta, {c, TYPE, ldc}, COMPUTE});                      \
  }                                                                                                                                             \
  inline cublasStatus_t cublas##LETTER##trsm(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t fill, cublasOperation_t trans, cublasDiagType_t diag, int m, int n,  \
                                             const T* alpha, const T* a, int lda, T* b, int ldb) {                                              \
    return emulator::trsm(handle, {side, fill, trans, diag, m, n, alpha, {a, TYPE, lda}, {b, TYPE, ldb}});                                       \
  }                                                                                                                                             \
  inline cublasStatus_t cublas##LETTER##trmm(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t fill, cublasOperation_t trans, cublasDiagType_t diag, int m, int n,  \
                                             const T* alpha, const T* a, int lda, const T* b, int ldb, T* c, int ldc) {                         \
    return emulator::trmm(handle, {side, fill, trans, diag, m, n, alpha, {a, TYPE, lda}, {b, TYPE, ldb}}, {c, TYPE, ldc});                       \
  }                                                                                                                                             \
  inline cublasStatus_t cublas##LETTER##symm(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t fill, int m, int n, const T* alpha, const T* a, int lda,             \
                                             const T* b, int ldb, const T* beta, T* c, int ldc) {                                               \
    return emulator::symm(handle, {side, fill, m, n, alpha, {a, TYPE, lda}, {b, TYPE, ldb}, beta, {c, TYPE, ldc}});                              \
  }                                                                                                                                             \
  inline cublasStatus_t cublas##LETTER##syrk(cublasHandle_t handle, cublasFillMode_t fill, cublasOperation_t trans, int n, int k, const T* alpha, const T* a, int lda,           \
                                             const T* beta, T* c, int ldc) {                                                                    \
    return emulator::syrk(handle, {fill, trans, n, k, alpha, {a, TYPE, lda}, {nullptr, TYPE, lda}, beta, {c, TYPE, ldc}});                       \
  }                                                                                                                                             \
  inline cublasStatus_t cublas##LETTER##syr2k(cublasHandle_t handle, cublasFillMode_t fill, cublasOperation_t trans, int n, int k, const T* alpha, const T* a, int lda,          \
                                              const T* b, int ldb, const T* beta, T* c, int ldc) {                                              \
    return emulator::syrk(handle, {fill, trans, n, k, alpha, {a, TYPE, lda}, {b, TYPE, ldb}, beta, {c, TYPE, ldc}});                             \
  }                                                                                                                                             \
  inline cublasStatus_t cublas##LETTER##gemv(cublasHandle_t handle, cublasOperation_t trans, int m, int n, const T* alpha, const T* a, int lda, const T* x, int incx,            \
                                             const T* beta, T* y, int incy) {                                                                   \
    const bool plain = trans == CUBLAS_OP_N;                                                                                                    \
    /* A vector with a stride is the one row of a matrix with that leading dimension. */                                                        \
    return emulator::gemm(handle, {CUBLAS_OP_N, plain ? CUBLAS_OP_T : CUBLAS_OP_N, 1, plain ? m : n, plain ? n : m, alpha, {x, TYPE, incx}, {a, TYPE, lda}, beta, {y, TYPE, incy}, COMPUTE}); \
  }
EMULATOR_LEVEL_3(S, float, CUDA_R_32F, CUBLAS_COMPUTE_32F)
EMULATOR_LEVEL_3(D, double, CUDA_R_64F, CUBLAS_COMPUTE_64F)
#undef EMULATOR_LEVEL_3
#pragma GCC visibility pop

#include "emulator/cublas_vectors.h"
