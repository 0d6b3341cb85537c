// Implements cuBLAS with torch's CPU kernels. A column-major matrix is a tensor whose first stride is one.
#include "emulator/cublas.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linalg_solve_triangular.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <memory>
#include <string>

#include "emulator/memory.h"
#include "tf32.h"

struct cublasContext {
  int mode = CUBLAS_DEFAULT_MATH;
  cudaStream_t stream = nullptr;
};

namespace emulator {
namespace {

at::ScalarType scalar_type(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_64F: return at::kDouble;
    case CUDA_R_16F: return at::kHalf;
    case CUDA_R_16BF: return at::kBFloat16;
    case CUDA_R_8I: return at::kChar;
    case CUDA_R_32I: return at::kInt;
    default: return at::kFloat;
  }
}

at::Tensor column_major(const void* address, cudaDataType_t type, int64_t rows, int64_t columns, int64_t leading) {
  return at::from_blob(const_cast<void*>(address), {rows, columns}, {1, leading}, scalar_type(type));
}

bool known(cublasOperation_t op) { return op == CUBLAS_OP_N || op == CUBLAS_OP_T || op == CUBLAS_OP_C; }

// The type in which products are summed, and of alpha and beta. For half precision it is float (half_product).
at::ScalarType compute_type(cublasComputeType_t compute) {
  if (compute == CUBLAS_COMPUTE_64F || compute == CUBLAS_COMPUTE_64F_PEDANTIC) return at::kDouble;
  return compute == CUBLAS_COMPUTE_32I ? at::kInt : at::kFloat;
}

double scalar(const void* address, cublasComputeType_t compute) {
  if (compute == CUBLAS_COMPUTE_16F || compute == CUBLAS_COMPUTE_16F_PEDANTIC) return __half2float(*static_cast<const __half*>(address));
  if (compute_type(compute) == at::kInt) return *static_cast<const int*>(address);
  return compute_type(compute) == at::kDouble ? *static_cast<const double*>(address) : *static_cast<const float*>(address);
}
double scalar(const void* address, cudaDataType_t type) {
  return type == CUDA_R_64F ? *static_cast<const double*>(address) : *static_cast<const float*>(address);
}

// Checks that cuBLAS documents this combination of types for cublasGemmEx, or takes it on an H200 all the same: half
// operands with CUBLAS_COMPUTE_32F_FAST_16F.
// https://docs.nvidia.com/cuda/cublas/#cublasgemmex
bool supported(const Gemm& g) {
  if (g.a.type != g.b.type) return false;
  switch (g.compute) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC: return g.a.type == CUDA_R_16F && g.c.type == CUDA_R_16F;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC: return g.a.type == CUDA_R_64F && g.c.type == CUDA_R_64F;
    case CUBLAS_COMPUTE_32I: return g.a.type == CUDA_R_8I && g.c.type == CUDA_R_32I;
    case CUBLAS_COMPUTE_32F_FAST_16F:
      if (g.a.type == CUDA_R_16F && g.c.type == CUDA_R_16F) return true;
      [[fallthrough]];
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32: return g.a.type == CUDA_R_32F && g.c.type == CUDA_R_32F;
    default:
      return (g.a.type == CUDA_R_32F || g.a.type == CUDA_R_16F || g.a.type == CUDA_R_16BF || g.a.type == CUDA_R_8I) &&
             (g.c.type == CUDA_R_32F || (g.c.type == g.a.type && g.a.type != CUDA_R_8I));
  }
}

// Checks the conditions for which the documentation promises CUBLAS_STATUS_INVALID_VALUE.
// https://docs.nvidia.com/cuda/cublas/#cublas-t-gemm
bool valid(const Gemm& g, const Batch& batch) {
  if (g.m < 0 || g.n < 0 || g.k < 0 || batch.count < 0 || !known(g.transpose_a) || !known(g.transpose_b) || !g.alpha || !g.beta) return false;
  const int rows_a = g.transpose_a == CUBLAS_OP_N ? g.m : g.k, rows_b = g.transpose_b == CUBLAS_OP_N ? g.k : g.n;
  if (g.a.leading < std::max(1, rows_a) || g.b.leading < std::max(1, rows_b) || g.c.leading < std::max(1, g.m)) return false;
  return g.c.address || batch.cs || !g.m || !g.n;
}

cublasStatus_t illegal() {
  fail(cudaErrorIllegalAddress, "an argument of a cuBLAS call is host memory, which a kernel cannot access");
  return CUBLAS_STATUS_EXECUTION_FAILED;
}

at::Tensor operand(const Matrix& matrix, bool transposed, int64_t rows, int64_t columns) {
  const auto stored = column_major(matrix.address, matrix.type, transposed ? columns : rows, transposed ? rows : columns, matrix.leading);
  return transposed ? stored.t() : stored;
}

// Returns whether the operands are rounded to TF32: by the compute type, or by the handle's math mode.
// https://docs.nvidia.com/cuda/cublas/#cublasmath-t
bool uses_tf32(const Gemm& g, cublasHandle_t handle) {
  if (g.a.type != CUDA_R_32F) return false;
  const int mode = handle->mode & ~CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
  const bool allowed = mode == CUBLAS_TF32_TENSOR_OP_MATH || mode == CUBLAS_TENSOR_OP_MATH || (handle == torch_cublas_handle() && torch_allows_tf32());
  return g.compute == CUBLAS_COMPUTE_32F_FAST_16F || g.compute == CUBLAS_COMPUTE_32F_FAST_16BF || g.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ||
         (g.compute == CUBLAS_COMPUTE_32F && allowed);
}

// A product in half precision: tensor cores round the sums after each instruction, which adds 16 products.
at::Tensor half_product(const at::Tensor& a, const at::Tensor& b) {
  constexpr int64_t kProducts = 16;
  auto sums = at::zeros({a.size(0), b.size(1)}, a.options());
  for (int64_t at = 0; at < a.size(1); at += kProducts) {
    const int64_t count = std::min(kProducts, a.size(1) - at);
    sums = at::addmm(sums, a.narrow(1, at, count), b.narrow(0, at, count)).to(at::kHalf).to(at::kFloat);
  }
  return sums;
}

cublasStatus_t run_one(const Gemm& g, bool tf32) {
  if (!is_device(g.c.address) || (g.k && (!is_device(g.a.address) || !is_device(g.b.address)))) return illegal();
  const auto type = compute_type(g.compute);
  auto a = operand(g.a, g.transpose_a != CUBLAS_OP_N, g.m, g.k).to(type), b = operand(g.b, g.transpose_b != CUBLAS_OP_N, g.k, g.n).to(type);
  if (tf32) a = rounded_to_tf32(a), b = rounded_to_tf32(b);
  auto c = column_major(g.c.address, g.c.type, g.m, g.n, g.c.leading);
  const double alpha = scalar(g.alpha, g.compute), beta = scalar(g.beta, g.compute);
  const bool halves = g.compute == CUBLAS_COMPUTE_16F || g.compute == CUBLAS_COMPUTE_16F_PEDANTIC;
  auto product = halves ? half_product(a, b) : at::mm(a, b);
  if (alpha != 1) product.mul_(alpha);
  // If beta is 0, cuBLAS does not read C, so C may contain any values.
  if (beta != 0) product.add_(c.to(type), beta);
  c.copy_(product);
  return CUBLAS_STATUS_SUCCESS;
}

const void* moved(const Matrix& matrix, long long elements) {
  return static_cast<const char*>(matrix.address) + elements * static_cast<long long>(c10::elementSize(scalar_type(matrix.type)));
}

// Returns one triangle of a square matrix. If requested, its diagonal is all ones.
at::Tensor triangle(const Matrix& matrix, int64_t n, cublasFillMode_t fill, bool unit) {
  const auto stored = column_major(matrix.address, matrix.type, n, n, matrix.leading);
  auto out = fill == CUBLAS_FILL_MODE_LOWER ? stored.tril() : stored.triu();
  if (unit) out.diagonal().fill_(1);
  return out;
}

cublasStatus_t ready(cublasHandle_t handle, std::initializer_list<const Matrix*> matrices) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (synchronize()) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (captures(handle->stream)) return CUBLAS_STATUS_NOT_SUPPORTED;
  finish(handle->stream);
  for (const Matrix* matrix : matrices)
    if (matrix->address && !is_device(matrix->address)) return illegal();
  return CUBLAS_STATUS_SUCCESS;
}

// Records a product. The caller's alpha and beta may be gone when the graph is launched.
cublasStatus_t record_gemm(cublasHandle_t handle, const Gemm& call, const Batch& batch) {
  const auto kept = [&](const void* number) {
    const auto type = call.compute == CUBLAS_COMPUTE_16F || call.compute == CUBLAS_COMPUTE_16F_PEDANTIC ? at::kHalf : compute_type(call.compute);
    return std::make_shared<std::string>(static_cast<const char*>(number), c10::elementSize(type));
  };
  const bool is_torchs = handle == torch_cublas_handle();
  return record(handle->stream, [=, own = *handle, alpha = kept(call.alpha), beta = kept(call.beta)]() mutable {
    Gemm now = call;
    now.alpha = alpha->data(), now.beta = beta->data();
    gemm(is_torchs ? torch_cublas_handle() : &own, now, batch);
    return synchronize();
  }) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}

}  // namespace

cublasStatus_t gemm(cublasHandle_t handle, const Gemm& call, const Batch& batch) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!valid(call, batch)) return CUBLAS_STATUS_INVALID_VALUE;
  if (!supported(call)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (synchronize()) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (!call.m || !call.n) return CUBLAS_STATUS_SUCCESS;
  if (captures(handle->stream)) return record_gemm(handle, call, batch);
  finish(handle->stream);
  if (batch.cs && (!is_device(batch.as) || !is_device(batch.bs) || !is_device(batch.cs))) return illegal();
  for (int i = 0; i < batch.count; ++i) {
    Gemm one = call;
    one.a.address = batch.as ? batch.as[i] : moved(call.a, i * batch.a);
    one.b.address = batch.bs ? batch.bs[i] : moved(call.b, i * batch.b);
    one.c.address = batch.cs ? batch.cs[i] : moved(call.c, i * batch.c);
    const cublasStatus_t status = run_one(one, uses_tf32(call, handle));
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t geam(cublasHandle_t handle, const Gemm& g) {
  const cublasStatus_t status = ready(handle, {&g.a, &g.b, &g.c});
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const double alpha = scalar(g.alpha, g.compute), beta = scalar(g.beta, g.compute);
  auto c = column_major(g.c.address, g.c.type, g.m, g.n, g.c.leading);
  at::Tensor sum;
  if (alpha != 0) sum = operand(g.a, g.transpose_a != CUBLAS_OP_N, g.m, g.n).mul(alpha);
  if (beta != 0) {
    const auto term = operand(g.b, g.transpose_b != CUBLAS_OP_N, g.m, g.n).mul(beta);
    sum = sum.defined() ? sum.add(term) : term;
  }
  if (sum.defined()) c.copy_(sum);
  else c.zero_();
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t trsm(cublasHandle_t handle, const Triangular& t) {
  const cublasStatus_t status = ready(handle, {&t.a, &t.b});
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const bool left = t.side == CUBLAS_SIDE_LEFT, transposed = t.transpose != CUBLAS_OP_N;
  auto a = triangle(t.a, left ? t.m : t.n, t.fill, t.diagonal == CUBLAS_DIAG_UNIT);
  if (transposed) a = a.t();
  auto b = column_major(t.b.address, t.b.type, t.m, t.n, t.b.leading);
  const bool upper = (t.fill == CUBLAS_FILL_MODE_UPPER) != transposed;
  b.copy_(at::linalg_solve_triangular(a, b.mul(scalar(t.alpha, t.b.type)), upper, left, false));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t trmm(cublasHandle_t handle, const Triangular& t, Matrix result) {
  const cublasStatus_t status = ready(handle, {&t.a, &t.b, &result});
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const bool left = t.side == CUBLAS_SIDE_LEFT;
  auto a = triangle(t.a, left ? t.m : t.n, t.fill, t.diagonal == CUBLAS_DIAG_UNIT);
  if (t.transpose != CUBLAS_OP_N) a = a.t();
  const auto b = column_major(t.b.address, t.b.type, t.m, t.n, t.b.leading);
  column_major(result.address, result.type, t.m, t.n, result.leading).copy_((left ? at::mm(a, b) : at::mm(b, a)).mul(scalar(t.alpha, t.b.type)));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t symm(cublasHandle_t handle, const Symmetric& s) {
  const cublasStatus_t status = ready(handle, {&s.a, &s.b, &s.c});
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const bool left = s.side == CUBLAS_SIDE_LEFT;
  const int64_t n = left ? s.m : s.n;
  const auto half = triangle(s.a, n, s.fill, false);
  auto a = half.add(half.t());
  a.diagonal().div_(2);
  const auto b = column_major(s.b.address, s.b.type, s.m, s.n, s.b.leading);
  auto c = column_major(s.c.address, s.c.type, s.m, s.n, s.c.leading);
  auto product = (left ? at::mm(a, b) : at::mm(b, a)).mul(scalar(s.alpha, s.c.type));
  const double beta = scalar(s.beta, s.c.type);
  if (beta != 0) product.add_(c, beta);
  c.copy_(product);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t syrk(cublasHandle_t handle, const RankK& r) {
  const cublasStatus_t status = ready(handle, {&r.a, &r.b, &r.c});
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const bool transposed = r.transpose != CUBLAS_OP_N;
  const auto a = operand(r.a, transposed, r.n, r.k);
  auto product = at::mm(a, a.t());
  if (r.b.address) {
    const auto b = operand(r.b, transposed, r.n, r.k);
    product = at::mm(a, b.t()).add(at::mm(b, a.t()));
  }
  product.mul_(scalar(r.alpha, r.c.type));
  auto c = column_major(r.c.address, r.c.type, r.n, r.n, r.c.leading);
  const double beta = scalar(r.beta, r.c.type);
  if (beta != 0) product.add_(c, beta);
  const bool lower = r.fill == CUBLAS_FILL_MODE_LOWER;
  // Only one triangle of C is written.
  const auto ones = product.new_ones({r.n, r.n}), written = lower ? ones.tril() : ones.triu();
  c.copy_(product.where(written.to(at::kBool), c));
  return CUBLAS_STATUS_SUCCESS;
}

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

cublasStatus_t cublas_set_stream(cublasHandle_t handle, cudaStream_t stream) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublas_get_stream(cublasHandle_t handle, cudaStream_t* stream) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  *stream = handle->stream;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublas_set_mode(cublasHandle_t handle, int mode) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  handle->mode = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublas_get_mode(cublasHandle_t handle, int* mode) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  *mode = handle->mode;
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

}  // namespace emulator
