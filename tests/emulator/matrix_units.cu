// The instructions of the matrix units that one warp calls: mma.sync and wmma. A GPU runs this file, too.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#include <torch/extension.h>

namespace wmma = nvcuda::wmma;

enum Kind { HALF, BFLOAT16, TF32, E4M3, E5M2, HALF_SUM, HALF_8, TF32_4, E4M3_HALF_SUM };
__device__ void mma_half(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ void mma_bfloat16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ void mma_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ void mma_e4m3(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ void mma_e5m2(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ void mma_half_sum(uint32_t (&h)[2], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
               : "+r"(h[0]), "+r"(h[1])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ void mma_half_8(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(b[0]));
}
__device__ void mma_tf32_4(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(b[0]));
}
__device__ void mma_e4m3_half_sum(uint32_t (&h)[2], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
               : "+r"(h[0]), "+r"(h[1])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// C (16 x 8) += A (16 x K) B (8 x K)^T, `repeats` times. A row of A or B has 32 bytes, or 16 if `kind` has half the depth.
__global__ void mma_kernel(const uint32_t* A, const uint32_t* B, float* C, int kind, int repeats) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4, wide = kind == HALF_8 || kind == TF32_4 ? 4 : 8;
  uint32_t a[4] = {}, b[2] = {}, h[2];
  float c[4];
  for (int i = 0; i < wide / 2; ++i) a[i] = A[(g + i % 2 * 8) * wide + i / 2 * 4 + t];
  for (int i = 0; i < wide / 4; ++i) b[i] = B[g * wide + i * 4 + t];
  for (int i = 0; i < 4; ++i) c[i] = C[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
  for (int i = 0; i < 2; ++i) {
    const __half2 pair = __floats2half2_rn(c[2 * i], c[2 * i + 1]);
    memcpy(&h[i], &pair, 4);
  }
  for (int i = 0; i < repeats; ++i) {
    switch (kind) {
      case HALF: mma_half(c, a, b); break;
      case BFLOAT16: mma_bfloat16(c, a, b); break;
      case TF32: mma_tf32(c, a, b); break;
      case E4M3: mma_e4m3(c, a, b); break;
      case E5M2: mma_e5m2(c, a, b); break;
      case HALF_SUM: mma_half_sum(h, a, b); break;
      case HALF_8: mma_half_8(c, a, b); break;
      case TF32_4: mma_tf32_4(c, a, b); break;
      default: mma_e4m3_half_sum(h, a, b);
    }
  }
  for (int i = 0; i < 4; ++i) {
    const uint32_t bits = h[i / 2] >> i % 2 * 16;
    C[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = kind == HALF_SUM || kind == E4M3_HALF_SUM ? __half2float(__ushort_as_half(static_cast<unsigned short>(bits))) : c[i];
  }
}
void mma(torch::Tensor A, torch::Tensor B, torch::Tensor C, int kind, int repeats) {
  mma_kernel<<<1, 32>>>(static_cast<const uint32_t*>(A.data_ptr()), static_cast<const uint32_t*>(B.data_ptr()), C.data_ptr<float>(), kind, repeats);
}

// C (16 x 16) += A (16 x K) B (16 x K)^T.
template <class T, int K, class S, class Sum>
__global__ void wmma_kernel(const S* A, const S* B, Sum* C, int repeats) {
  wmma::fragment<wmma::matrix_a, 16, 16, K, T, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, K, T, wmma::col_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, K, Sum> c;
  wmma::load_matrix_sync(a, A, K);
  wmma::load_matrix_sync(b, B, K);
  wmma::load_matrix_sync(c, C, 16, wmma::mem_row_major);
  for (int i = 0; i < repeats; ++i) wmma::mma_sync(c, a, b, c);
  wmma::store_matrix_sync(C, c, 16, wmma::mem_row_major);
}
void wmma_product(torch::Tensor A, torch::Tensor B, torch::Tensor C, int kind, int repeats) {
  const void *a = A.data_ptr(), *b = B.data_ptr();
  void* c = C.data_ptr();
  if (kind == HALF) wmma_kernel<__half, 16><<<1, 32>>>(static_cast<const __half*>(a), static_cast<const __half*>(b), static_cast<float*>(c), repeats);
  else if (kind == BFLOAT16) wmma_kernel<__nv_bfloat16, 16><<<1, 32>>>(static_cast<const __nv_bfloat16*>(a), static_cast<const __nv_bfloat16*>(b), static_cast<float*>(c), repeats);
  else if (kind == TF32) wmma_kernel<wmma::precision::tf32, 8><<<1, 32>>>(static_cast<const float*>(a), static_cast<const float*>(b), static_cast<float*>(c), repeats);
  else wmma_kernel<__half, 16><<<1, 32>>>(static_cast<const __half*>(a), static_cast<const __half*>(b), static_cast<__half*>(c), repeats);
}
