// cuBLASLt for host code: one product of matrices, or of batches, with an epilogue. A combination that the emulator lacks
// returns CUBLAS_STATUS_NOT_SUPPORTED. https://docs.nvidia.com/cuda/cublas/#using-the-cublaslt-api
#pragma once
#include <cstddef>
#include <cstdint>

#include "emulator/cublas.h"

enum cublasLtMatmulDescAttributes_t {
  CUBLASLT_MATMUL_DESC_COMPUTE_TYPE = 0,
  CUBLASLT_MATMUL_DESC_SCALE_TYPE = 1,
  CUBLASLT_MATMUL_DESC_POINTER_MODE = 2,
  CUBLASLT_MATMUL_DESC_TRANSA = 3,
  CUBLASLT_MATMUL_DESC_TRANSB = 4,
  CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
  CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
  CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26,
};
enum cublasLtPointerMode_t { CUBLASLT_POINTER_MODE_HOST = 0, CUBLASLT_POINTER_MODE_DEVICE = 1 };
enum cublasLtEpilogue_t {
  CUBLASLT_EPILOGUE_DEFAULT = 1,
  CUBLASLT_EPILOGUE_RELU = 2,
  CUBLASLT_EPILOGUE_BIAS = 4,
  CUBLASLT_EPILOGUE_RELU_BIAS = 6,
  CUBLASLT_EPILOGUE_GELU = 32,
  CUBLASLT_EPILOGUE_GELU_BIAS = 36,
};
enum cublasLtOrder_t { CUBLASLT_ORDER_COL = 0, CUBLASLT_ORDER_ROW = 1 };
enum cublasLtMatrixLayoutAttribute_t {
  CUBLASLT_MATRIX_LAYOUT_TYPE = 0,
  CUBLASLT_MATRIX_LAYOUT_ORDER = 1,
  CUBLASLT_MATRIX_LAYOUT_ROWS = 2,
  CUBLASLT_MATRIX_LAYOUT_COLS = 3,
  CUBLASLT_MATRIX_LAYOUT_LD = 4,
  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6,
};
enum cublasLtMatmulPreferenceAttributes_t {
  CUBLASLT_MATMUL_PREF_SEARCH_MODE = 0,
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
  CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8,
};

typedef struct cublasLtContext* cublasLtHandle_t;
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F, bias_type = static_cast<cudaDataType_t>(-1);  // -1: the type of D
  std::int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};
struct cublasLtMatrixLayoutOpaque_t {
  std::uint32_t type = CUDA_R_32F;
  std::int32_t order = CUBLASLT_ORDER_COL, batch = 1;
  std::uint64_t rows = 0, columns = 0;
  std::int64_t leading = 0, stride = 0;
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t data[8] = {};
};
typedef cublasLtMatmulDescOpaque_t* cublasLtMatmulDesc_t;
typedef cublasLtMatrixLayoutOpaque_t* cublasLtMatrixLayout_t;
typedef cublasLtMatmulPreferenceOpaque_t* cublasLtMatmulPreference_t;
struct cublasLtMatmulAlgo_t {
  std::uint64_t data[8] = {};
};
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  std::size_t workspaceSize = 0;
  cublasStatus_t state = CUBLAS_STATUS_SUCCESS;
  float wavesCount = 1;
  int reserved[4] = {};
};

namespace emulator {

// D = epilogue(alpha op(A) op(B) + beta C + bias).
struct LtMatmul {
  const cublasLtMatmulDescOpaque_t& how;
  const void* alpha;
  const void* a;
  const cublasLtMatrixLayoutOpaque_t& a_layout;
  const void* b;
  const cublasLtMatrixLayoutOpaque_t& b_layout;
  const void* beta;
  const void* c;
  const cublasLtMatrixLayoutOpaque_t& c_layout;
  void* d;
  const cublasLtMatrixLayoutOpaque_t& d_layout;
};
cublasStatus_t lt_matmul(const LtMatmul& call);
cublasLtHandle_t lt_handle();
cublasStatus_t lt_set(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void* value, std::size_t bytes);
cublasStatus_t lt_set(cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, const void* value, std::size_t bytes);

}  // namespace emulator

#pragma GCC visibility push(hidden)
inline cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { *handle = emulator::lt_handle(); return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED; }
inline cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t compute, cudaDataType_t scale) {
  *out = new cublasLtMatmulDescOpaque_t{compute, scale};
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) { delete description; return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t which, const void* value, std::size_t bytes) {
  return emulator::lt_set(description, which, value, bytes);
}
inline cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType type, std::uint64_t rows, std::uint64_t columns, std::int64_t leading) {
  *out = new cublasLtMatrixLayoutOpaque_t{type, CUBLASLT_ORDER_COL, 1, rows, columns, leading};
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { delete layout; return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which, const void* value, std::size_t bytes) {
  return emulator::lt_set(layout, which, value, bytes);
}
inline cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) { *out = new cublasLtMatmulPreferenceOpaque_t; return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) { delete preference; return CUBLAS_STATUS_SUCCESS; }
// A cublasLtMatmulPreference_t has no effect, because there is one algorithm, which needs no workspace.
inline cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t, const void*, std::size_t) {
  return preference ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
inline cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                     cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int wanted, cublasLtMatmulHeuristicResult_t* results, int* found) {
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  *results = {};
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t how, const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                                     cublasLtMatrixLayout_t b_layout, const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                                     const cublasLtMatmulAlgo_t*, void*, std::size_t, cudaStream_t stream) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!how || !alpha || !beta || !a_layout || !b_layout || !c_layout || !d_layout) return CUBLAS_STATUS_INVALID_VALUE;
  if (emulator::captures(stream)) return CUBLAS_STATUS_NOT_SUPPORTED;
  emulator::finish(stream);
  return emulator::lt_matmul({*how, alpha, a, *a_layout, b, *b_layout, beta, c, *c_layout, d, *d_layout});
}
#pragma GCC visibility pop
