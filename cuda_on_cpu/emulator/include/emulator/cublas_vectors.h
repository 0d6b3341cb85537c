// The functions of cuBLAS for vectors, and for copies of vectors and matrices between host and device. A stride counts
// elements.
#pragma once
#include <cmath>

#include "emulator/cublas.h"
#include "emulator/sanitize.h"

namespace emulator {

// Runs `work` after the work of the handle's stream, if all vectors are in device memory.
template <class W>
cublasStatus_t with_vectors(cublasHandle_t handle, std::initializer_list<const void*> vectors, W work) {
  cudaStream_t stream = nullptr;
  if (!handle || cublas_get_stream(handle, &stream) != CUBLAS_STATUS_SUCCESS) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (captures(stream)) return CUBLAS_STATUS_NOT_SUPPORTED;
  finish(stream);
  for (const void* vector : vectors)
    if (!is_device(vector)) fail(cudaErrorIllegalAddress, "a vector of cuBLAS is host memory, which the device cannot access");
  if (synchronize()) return CUBLAS_STATUS_EXECUTION_FAILED;
  work();
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
struct Vector {  // cuBLAS walks backwards through a vector with a negative stride
  T* first;
  long long stride;
  Vector(T* start, int n, int stride) : first(stride < 0 ? start + static_cast<long long>(1 - n) * stride : start), stride(stride) {}
  T& operator[](int i) const { return first[i * stride]; }
};

template <class T>
void written(T* start, int n, int stride) {
  if (sanitize::on && n > 0) sanitize::written_by_host(start, (static_cast<std::size_t>(n - 1) * static_cast<std::size_t>(std::abs(stride)) + 1) * sizeof(T));
}

template <class T, class Term>
T total(int n, Term term) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += term(i);
  return static_cast<T>(sum);
}

// Returns the place, from 1, of the first element whose absolute value no other exceeds, or falls below if `least`.
template <class T>
int extreme(int n, const Vector<const T>& x, bool least) {
  int best = 0;
  for (int i = 1; i < n; ++i)
    if (least ? std::abs(x[i]) < std::abs(x[best]) : std::abs(x[i]) > std::abs(x[best])) best = i;
  return n > 0 ? best + 1 : 0;
}

inline cublasStatus_t copied(cudaError_t error) { return error ? CUBLAS_STATUS_MAPPING_ERROR : CUBLAS_STATUS_SUCCESS; }

}  // namespace emulator

#pragma GCC visibility push(hidden)
#define EMULATOR_VECTORS(LETTER, LOWER, T)                                                                              \
  inline cublasStatus_t cublas##LETTER##axpy(cublasHandle_t handle, int n, const T* alpha, const T* x, int incx, T* y, int incy) { \
    return emulator::with_vectors(handle, {x, y}, [&] {                                                                 \
      const emulator::Vector<const T> from(x, n, incx);                                                                 \
      const emulator::Vector<T> to(y, n, incy);                                                                         \
      for (int i = 0; i < n; ++i) to[i] += *alpha * from[i];                                                            \
      emulator::written(y, n, incy);                                                                                    \
    });                                                                                                                 \
  }                                                                                                                     \
  inline cublasStatus_t cublas##LETTER##scal(cublasHandle_t handle, int n, const T* alpha, T* x, int incx) {            \
    return emulator::with_vectors(handle, {x}, [&] {                                                                    \
      for (int i = 0; i < n && incx > 0; ++i) x[static_cast<long long>(i) * incx] *= *alpha;                            \
      emulator::written(x, n, incx);                                                                                    \
    });                                                                                                                 \
  }                                                                                                                     \
  inline cublasStatus_t cublas##LETTER##copy(cublasHandle_t handle, int n, const T* x, int incx, T* y, int incy) {      \
    return emulator::with_vectors(handle, {x, y}, [&] {                                                                 \
      const emulator::Vector<const T> from(x, n, incx);                                                                 \
      const emulator::Vector<T> to(y, n, incy);                                                                         \
      for (int i = 0; i < n; ++i) to[i] = from[i];                                                                      \
      emulator::written(y, n, incy);                                                                                    \
    });                                                                                                                 \
  }                                                                                                                     \
  inline cublasStatus_t cublas##LETTER##swap(cublasHandle_t handle, int n, T* x, int incx, T* y, int incy) {            \
    return emulator::with_vectors(handle, {x, y}, [&] {                                                                 \
      const emulator::Vector<T> one(x, n, incx), other(y, n, incy);                                                     \
      for (int i = 0; i < n; ++i) std::swap(one[i], other[i]);                                                          \
      emulator::written(x, n, incx), emulator::written(y, n, incy);                                                     \
    });                                                                                                                 \
  }                                                                                                                     \
  inline cublasStatus_t cublas##LETTER##dot(cublasHandle_t handle, int n, const T* x, int incx, const T* y, int incy, T* result) { \
    return emulator::with_vectors(handle, {x, y}, [&] {                                                                 \
      const emulator::Vector<const T> one(x, n, incx), other(y, n, incy);                                               \
      *result = emulator::total<T>(n, [&](int i) { return static_cast<double>(one[i]) * other[i]; });                   \
    });                                                                                                                 \
  }                                                                                                                     \
  inline cublasStatus_t cublas##LETTER##nrm2(cublasHandle_t handle, int n, const T* x, int incx, T* result) {           \
    return emulator::with_vectors(handle, {x}, [&] {                                                                    \
      const emulator::Vector<const T> from(x, n, incx);                                                                 \
      *result = static_cast<T>(std::sqrt(emulator::total<double>(n, [&](int i) { return static_cast<double>(from[i]) * from[i]; }))); \
    });                                                                                                                 \
  }                                                                                                                     \
  inline cublasStatus_t cublas##LETTER##asum(cublasHandle_t handle, int n, const T* x, int incx, T* result) {           \
    return emulator::with_vectors(handle, {x}, [&] {                                                                    \
      const emulator::Vector<const T> from(x, n, incx);                                                                 \
      *result = emulator::total<T>(n, [&](int i) { return std::abs(static_cast<double>(from[i])); });                   \
    });                                                                                                                 \
  }                                                                                                                     \
  inline cublasStatus_t cublasI##LOWER##amax(cublasHandle_t handle, int n, const T* x, int incx, int* result) {         \
    return emulator::with_vectors(handle, {x}, [&] { *result = emulator::extreme<T>(n, {x, n, incx}, false); });        \
  }                                                                                                                     \
  inline cublasStatus_t cublasI##LOWER##amin(cublasHandle_t handle, int n, const T* x, int incx, int* result) {         \
    return emulator::with_vectors(handle, {x}, [&] { *result = emulator::extreme<T>(n, {x, n, incx}, true); });         \
  }
EMULATOR_VECTORS(S, s, float)
EMULATOR_VECTORS(D, d, double)
#undef EMULATOR_VECTORS

inline cublasStatus_t cublasSetMatrix(int rows, int columns, int bytes, const void* from, int lda, void* to, int ldb) {
  const auto size = static_cast<std::size_t>(bytes);
  return emulator::copied(cudaMemcpy2D(to, ldb * size, from, lda * size, rows * size, static_cast<std::size_t>(columns), cudaMemcpyHostToDevice));
}
inline cublasStatus_t cublasGetMatrix(int rows, int columns, int bytes, const void* from, int lda, void* to, int ldb) {
  const auto size = static_cast<std::size_t>(bytes);
  return emulator::copied(cudaMemcpy2D(to, ldb * size, from, lda * size, rows * size, static_cast<std::size_t>(columns), cudaMemcpyDeviceToHost));
}
// A vector with a stride is one row of a matrix.
inline cublasStatus_t cublasSetVector(int n, int bytes, const void* from, int incx, void* to, int incy) { return cublasSetMatrix(1, n, bytes, from, incx, to, incy); }
inline cublasStatus_t cublasGetVector(int n, int bytes, const void* from, int incx, void* to, int incy) { return cublasGetMatrix(1, n, bytes, from, incx, to, incy); }
#pragma GCC visibility pop
