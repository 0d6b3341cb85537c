// cuBLAS on torch's CPU kernels: a column-major matrix is a tensor whose first stride is one.
#include "emulator/cublas.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>

#include <algorithm>

#include "emulator/memory.h"

struct cublasContext {
  int unused = 0;
};

namespace emulator {
namespace {

template <class T>
at::Tensor column_major(const T* address, int64_t rows, int64_t columns, int64_t leading) {
  return at::from_blob(const_cast<T*>(address), {rows, columns}, {1, leading}, c10::CppTypeToScalarType<T>::value);
}

// The conditions that the reference documents as CUBLAS_STATUS_INVALID_VALUE.
// https://docs.nvidia.com/cuda/cublas/#cublas-t-gemm
template <class T>
bool valid(const Gemm<T>& g) {
  auto known = [](cublasOperation_t op) { return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C; };
  if (g.m < 0 || g.n < 0 || g.k < 0 || !known(g.transpose_a) || !known(g.transpose_b) || !g.alpha || !g.beta) return false;
  const int rows_a = g.transpose_a == CUBLAS_OP_N ? g.m : g.k, rows_b = g.transpose_b == CUBLAS_OP_N ? g.k : g.n;
  if (g.lda < std::max(1, rows_a) || g.ldb < std::max(1, rows_b) || g.ldc < std::max(1, g.m)) return false;
  return g.c || !g.m || !g.n;
}

template <class T>
cublasStatus_t run(cublasHandle_t handle, const Gemm<T>& g) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!valid(g)) return CUBLAS_STATUS_INVALID_VALUE;
  if (synchronize()) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (!g.m || !g.n) return CUBLAS_STATUS_SUCCESS;
  if (!is_device(g.c) || (g.k && (!is_device(g.a) || !is_device(g.b)))) {
    fail(cudaErrorIllegalAddress, "cuBLAS was given host memory, which a kernel cannot reach");
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  const bool ta = g.transpose_a != CUBLAS_OP_N, tb = g.transpose_b != CUBLAS_OP_N;
  auto a = column_major(g.a, ta ? g.k : g.m, ta ? g.m : g.k, g.lda);
  auto b = column_major(g.b, tb ? g.n : g.k, tb ? g.k : g.n, g.ldb);
  auto c = column_major(g.c, g.m, g.n, g.ldc);
  if (ta) a = a.t();
  if (tb) b = b.t();
  // With beta 0 cuBLAS does not read C, which may hold anything.
  c.copy_(*g.beta == T(0) ? at::mm(a, b).mul_(*g.alpha) : at::addmm(c, a, b, *g.beta, *g.alpha));
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

cublasHandle_t torch_cublas_handle() {
  static cublasContext context;
  return &context;
}

cublasStatus_t cublas_create(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublas_destroy(cublasHandle_t handle) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (handle != torch_cublas_handle()) delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

const char* cublas_status_name(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH: return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_MAPPING_ERROR: return "CUBLAS_STATUS_MAPPING_ERROR";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_INTERNAL_ERROR: return "CUBLAS_STATUS_INTERNAL_ERROR";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "unknown cuBLAS status";
}

cublasStatus_t gemm(cublasHandle_t handle, const Gemm<float>& call) { return run(handle, call); }
cublasStatus_t gemm(cublasHandle_t handle, const Gemm<double>& call) { return run(handle, call); }

}  // namespace emulator
