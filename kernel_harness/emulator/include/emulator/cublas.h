// cuBLAS as host code sees it. Matrices are column-major; an argument that cuBLAS refuses is refused here.
#pragma once
#include "emulator/host.h"

enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_MAPPING_ERROR = 11,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_INTERNAL_ERROR = 14,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
};
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2 };
enum cublasPointerMode_t { CUBLAS_POINTER_MODE_HOST = 0, CUBLAS_POINTER_MODE_DEVICE = 1 };
enum cublasMath_t { CUBLAS_DEFAULT_MATH = 0, CUBLAS_TENSOR_OP_MATH = 1, CUBLAS_PEDANTIC_MATH = 2, CUBLAS_TF32_TENSOR_OP_MATH = 3 };
typedef struct cublasContext* cublasHandle_t;

namespace emulator {

cublasHandle_t torch_cublas_handle();
cublasStatus_t cublas_create(cublasHandle_t* handle);
cublasStatus_t cublas_destroy(cublasHandle_t handle);
const char* cublas_status_name(cublasStatus_t status);

// C = alpha op(A) op(B) + beta C, where op(A) is m x k and op(B) is k x n.
template <class T>
struct Gemm {
  cublasOperation_t transpose_a, transpose_b;
  int m, n, k;
  const T* alpha;
  const T* a;
  int lda;
  const T* b;
  int ldb;
  const T* beta;
  T* c;
  int ldc;
};
cublasStatus_t gemm(cublasHandle_t handle, const Gemm<float>& call);
cublasStatus_t gemm(cublasHandle_t handle, const Gemm<double>& call);

}  // namespace emulator

#pragma GCC visibility push(hidden)
inline cublasStatus_t cublasCreate(cublasHandle_t* handle) { return emulator::cublas_create(handle); }
inline cublasStatus_t cublasDestroy(cublasHandle_t handle) { return emulator::cublas_destroy(handle); }
inline const char* cublasGetStatusName(cublasStatus_t status) { return emulator::cublas_status_name(status); }
inline const char* cublasGetStatusString(cublasStatus_t status) { return emulator::cublas_status_name(status); }
inline cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t) { return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED; }
// Single precision is computed in single precision whatever the mode: rounding to TF32 would be allowed, never required.
inline cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t) { return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED; }
inline cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const float* alpha,
                                  const float* a, int lda, const float* b, int ldb, const float* beta, float* c, int ldc) {
  return emulator::gemm(handle, {ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc});
}
inline cublasStatus_t cublasDgemm(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const double* alpha,
                                  const double* a, int lda, const double* b, int ldb, const double* beta, double* c, int ldc) {
  return emulator::gemm(handle, {ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc});
}
#pragma GCC visibility pop
