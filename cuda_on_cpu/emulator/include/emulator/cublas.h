// cuBLAS for host code. Matrices are column-major. A call with arguments that cuBLAS rejects returns the same error.
#pragma once
#include <library_types.h>

#include "emulator/half.h"
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
  CUBLAS_STATUS_LICENSE_ERROR = 16,
};
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2 };
enum cublasFillMode_t { CUBLAS_FILL_MODE_LOWER = 0, CUBLAS_FILL_MODE_UPPER = 1 };
enum cublasSideMode_t { CUBLAS_SIDE_LEFT = 0, CUBLAS_SIDE_RIGHT = 1 };
enum cublasDiagType_t { CUBLAS_DIAG_NON_UNIT = 0, CUBLAS_DIAG_UNIT = 1 };
enum cublasPointerMode_t { CUBLAS_POINTER_MODE_HOST = 0, CUBLAS_POINTER_MODE_DEVICE = 1 };
enum cublasAtomicsMode_t { CUBLAS_ATOMICS_NOT_ALLOWED = 0, CUBLAS_ATOMICS_ALLOWED = 1 };
enum cublasMath_t { CUBLAS_DEFAULT_MATH = 0, CUBLAS_TENSOR_OP_MATH = 1, CUBLAS_PEDANTIC_MATH = 2, CUBLAS_TF32_TENSOR_OP_MATH = 3, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16 };
enum cublasComputeType_t {
  CUBLAS_COMPUTE_16F = 64,
  CUBLAS_COMPUTE_16F_PEDANTIC = 65,
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_32F_PEDANTIC = 69,
  CUBLAS_COMPUTE_64F = 70,
  CUBLAS_COMPUTE_64F_PEDANTIC = 71,
  CUBLAS_COMPUTE_32I = 72,
  CUBLAS_COMPUTE_32F_FAST_16F = 74,
  CUBLAS_COMPUTE_32F_FAST_16BF = 75,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
};
enum cublasGemmAlgo_t { CUBLAS_GEMM_DFALT = -1, CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99, CUBLAS_GEMM_DFALT_TENSOR_OP = 99 };
typedef struct cublasContext* cublasHandle_t;

namespace emulator {

cublasHandle_t torch_cublas_handle();
cublasStatus_t cublas_create(cublasHandle_t* handle);
cublasStatus_t cublas_destroy(cublasHandle_t handle);
cublasStatus_t cublas_set_stream(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublas_get_stream(cublasHandle_t handle, cudaStream_t* stream);
cublasStatus_t cublas_set_mode(cublasHandle_t handle, int mode);
cublasStatus_t cublas_get_mode(cublasHandle_t handle, int* mode);
const char* cublas_status_name(cublasStatus_t status);

// C = alpha op(A) op(B) + beta C, where op(A) is m x k and op(B) is k x n.
struct Matrix {
  const void* address;
  cudaDataType_t type;
  int leading;
};
struct Gemm {
  cublasOperation_t transpose_a, transpose_b;
  int m, n, k;
  const void* alpha;
  Matrix a, b;
  const void* beta;
  Matrix c;
  cublasComputeType_t compute;
};
struct Batch {
  int count = 1;
  long long a = 0, b = 0, c = 0;  // the distance from one matrix to the next, in elements
  const void *const *as = nullptr, *const *bs = nullptr, *const *cs = nullptr;  // or the matrices' device addresses
};
cublasStatus_t gemm(cublasHandle_t handle, const Gemm& call, const Batch& batch = {});

// trsm solves op(A) X = alpha B, or X op(A) = alpha B, for X. X replaces B.
struct Triangular {
  cublasSideMode_t side;
  cublasFillMode_t fill;
  cublasOperation_t transpose;
  cublasDiagType_t diagonal;
  int m, n;
  const void* alpha;
  Matrix a, b;
};
cublasStatus_t trsm(cublasHandle_t handle, const Triangular& call);
cublasStatus_t trmm(cublasHandle_t handle, const Triangular& call, Matrix c);
struct Symmetric {
  cublasSideMode_t side;
  cublasFillMode_t fill;
  int m, n;
  const void* alpha;
  Matrix a, b;
  const void* beta;
  Matrix c;
};
cublasStatus_t symm(cublasHandle_t handle, const Symmetric& call);
// C = alpha op(A) op(A)^T + beta C, or with a matrix B: C = alpha (op(A) op(B)^T + op(B) op(A)^T) + beta C. Only one
// triangle of C is written.
struct RankK {
  cublasFillMode_t fill;
  cublasOperation_t transpose;
  int n, k;
  const void* alpha;
  Matrix a, b;
  const void* beta;
  Matrix c;
};
cublasStatus_t syrk(cublasHandle_t handle, const RankK& call);
// C = alpha op(A) + beta op(B). op(A), op(B) and C are m x n.
cublasStatus_t geam(cublasHandle_t handle, const Gemm& call);

}  // namespace emulator

#include "emulator/cublas_names.h"
