// Implements cublasLtMatmul with torch's CPU kernels. A matrix is a tensor with the strides of its layout.
#include "emulator/cublas_lt.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/matmul.h>

#include <cstring>
#include <optional>

#include "emulator/memory.h"
#include "tf32.h"

struct cublasLtContext {};

namespace emulator {
namespace {

using Layout = cublasLtMatrixLayoutOpaque_t;

std::optional<at::ScalarType> scalar_type(std::uint32_t type) {
  switch (type) {
    case CUDA_R_64F: return at::kDouble;
    case CUDA_R_32F: return at::kFloat;
    case CUDA_R_16F: return at::kHalf;
    case CUDA_R_16BF: return at::kBFloat16;
    default: return std::nullopt;
  }
}

// A batch of matrices, as a tensor with three dimensions.
at::Tensor tensor_of(const void* address, const Layout& layout) {
  const int64_t rows = static_cast<int64_t>(layout.rows), columns = static_cast<int64_t>(layout.columns);
  const bool by_column = layout.order == CUBLASLT_ORDER_COL;
  return at::from_blob(const_cast<void*>(address), {layout.batch, rows, columns}, {layout.stride, by_column ? 1 : layout.leading, by_column ? layout.leading : 1},
                       *scalar_type(layout.type));
}

at::Tensor operand(const void* address, const Layout& layout, std::int32_t transpose, at::ScalarType type, bool tf32) {
  auto out = tensor_of(address, layout).to(type);
  if (transpose != CUBLAS_OP_N) out = out.transpose(1, 2);
  return tf32 ? rounded_to_tf32(out) : out;
}

bool uses_tf32(const LtMatmul& g) {
  const auto compute = g.how.compute;
  return g.a_layout.type == CUDA_R_32F && (compute == CUBLAS_COMPUTE_32F_FAST_TF32 || compute == CUBLAS_COMPUTE_32F_FAST_16F || compute == CUBLAS_COMPUTE_32F_FAST_16BF);
}

bool supported(const LtMatmul& g) {
  const auto compute = g.how.compute;
  const bool is_double = compute == CUBLAS_COMPUTE_64F || compute == CUBLAS_COMPUTE_64F_PEDANTIC;
  if (compute == CUBLAS_COMPUTE_32I || g.how.scale != (is_double ? CUDA_R_64F : CUDA_R_32F)) return false;
  for (const Layout* each : {&g.a_layout, &g.b_layout, &g.c_layout, &g.d_layout})
    if (!scalar_type(each->type) || (each->type == CUDA_R_64F) != is_double || (each->order != CUBLASLT_ORDER_COL && each->order != CUBLASLT_ORDER_ROW)) return false;
  const std::uint32_t rest = g.how.epilogue & ~(CUBLASLT_EPILOGUE_DEFAULT | CUBLASLT_EPILOGUE_RELU | CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_GELU);
  return g.a_layout.type == g.b_layout.type && g.c_layout.type == g.d_layout.type && !rest;
}

bool valid(const LtMatmul& g) {
  const auto rows = [](const Layout& layout, bool transposed) { return transposed ? layout.columns : layout.rows; };
  const bool ta = g.how.transpose_a != CUBLAS_OP_N, tb = g.how.transpose_b != CUBLAS_OP_N;
  for (const Layout* each : {&g.a_layout, &g.b_layout, &g.c_layout, &g.d_layout}) {
    const auto least = each->order == CUBLASLT_ORDER_COL ? each->rows : each->columns;
    if (each->leading < static_cast<std::int64_t>(least) || each->batch != g.d_layout.batch) return false;
  }
  return rows(g.a_layout, ta) == g.d_layout.rows && rows(g.b_layout, !tb) == g.d_layout.columns && rows(g.a_layout, !ta) == rows(g.b_layout, tb) &&
         g.c_layout.rows == g.d_layout.rows && g.c_layout.columns == g.d_layout.columns && (!(g.how.epilogue & CUBLASLT_EPILOGUE_BIAS) || g.how.bias);
}

template <class T>
cublasStatus_t assign(T& to, const void* value, std::size_t bytes) {
  if (!value || bytes != sizeof to) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

cublasLtHandle_t lt_handle() {
  static cublasLtContext context;
  return &context;
}

cublasStatus_t lt_set(cublasLtMatmulDesc_t how, cublasLtMatmulDescAttributes_t which, const void* value, std::size_t bytes) {
  switch (which) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE: return assign(how->compute, value, bytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE: return assign(how->scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE: return CUBLAS_STATUS_SUCCESS;  // scalars in device and host memory are read alike
    case CUBLASLT_MATMUL_DESC_TRANSA: return assign(how->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return assign(how->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return assign(how->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return assign(how->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return assign(how->bias_type, value, bytes);
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t lt_set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which, const void* value, std::size_t bytes) {
  switch (which) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE: return assign(layout->type, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER: return assign(layout->order, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS: return assign(layout->rows, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS: return assign(layout->columns, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD: return assign(layout->leading, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return assign(layout->batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return assign(layout->stride, value, bytes);
  }
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t lt_matmul(const LtMatmul& g) {
  if (!supported(g)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!valid(g)) return CUBLAS_STATUS_INVALID_VALUE;
  if (synchronize()) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (!is_device(g.a) || !is_device(g.b) || !is_device(g.d)) {
    fail(cudaErrorIllegalAddress, "an argument of cublasLtMatmul is host memory, which a kernel cannot access");
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  const auto type = g.how.scale == CUDA_R_64F ? at::kDouble : at::kFloat;
  const auto scalar = [&](const void* address) { return type == at::kDouble ? *static_cast<const double*>(address) : *static_cast<const float*>(address); };
  auto sum = at::matmul(operand(g.a, g.a_layout, g.how.transpose_a, type, uses_tf32(g)), operand(g.b, g.b_layout, g.how.transpose_b, type, uses_tf32(g)));
  sum.mul_(scalar(g.alpha));
  if (const double beta = scalar(g.beta); beta != 0) sum.add_(tensor_of(g.c, g.c_layout).to(type), beta);
  if (g.how.epilogue & CUBLASLT_EPILOGUE_BIAS) {  // one number for each row of D
    const auto bias_type = scalar_type(static_cast<int>(g.how.bias_type) < 0 ? g.d_layout.type : static_cast<std::uint32_t>(g.how.bias_type));
    if (!bias_type) return CUBLAS_STATUS_NOT_SUPPORTED;
    sum.add_(at::from_blob(const_cast<void*>(g.how.bias), {static_cast<int64_t>(g.d_layout.rows), 1}, *bias_type).to(type));
  }
  if (g.how.epilogue & CUBLASLT_EPILOGUE_RELU) sum.clamp_min_(0);
  if (g.how.epilogue & CUBLASLT_EPILOGUE_GELU) sum = at::gelu(sum, "tanh");
  tensor_of(g.d, g.d_layout).copy_(sum);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace emulator
