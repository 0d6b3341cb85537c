// What the emulator lacks of Hopper and Blackwell.
#include <cuda.h>
#include <torch/extension.h>

__global__ void refused_kernel(int* y, int how) {
  __shared__ alignas(1024) int in[1024];
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(in));
  float d[4] = {};
  if (how == 1) asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5], {%6};" ::"r"(at), "l"(y), "r"(0), "r"(0), "r"(0), "r"(at), "h"((short)0));  // im2col
  if (how == 2) asm volatile("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, %6, 0, 1, 1, 1, 0, 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(0ull), "l"(0ull), "r"(0));  // wgmma.mma_async.sp
  if (how == 3) asm volatile("wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc {%0, %1, %2, %3}, %4, %5, 1;" : "+r"(y[0]), "+r"(y[1]), "+r"(y[2]), "+r"(y[3]) : "l"(0ull), "l"(0ull));  // b1.b1
  if (how == 4) asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(at), "l"(y));  // tensormap.replace
  if (how == 5) asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" ::"r"(at));  // tcgen05.alloc
  if (how == 6) asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.im2col [%0, {%1, %2, %3}], {%4};" ::"l"(y), "r"(0), "r"(0), "r"(0), "h"((short)0));  // no effect
  y[threadIdx.x] = 1;
}

CUtensorMap map;
CUresult encode(CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, void* at) {
  const cuuint64_t sizes[] = {32, 32, 32}, strides[] = {128, 4096};
  const cuuint32_t box[] = {32, 16, 1}, steps[] = {1, 1, 1};
  void* function = nullptr;
  cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault);
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 3, at, sizes, strides, box, steps, interleave, swizzle,
                                                                       CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}
CUresult encode_im2col(void* at) {
  const cuuint64_t sizes[] = {32, 32, 32}, strides[] = {128, 4096};
  const int corner[] = {0};
  const cuuint32_t steps[] = {1, 1, 1};
  void* function = nullptr;
  cudaGetDriverEntryPoint("cuTensorMapEncodeIm2col", &function, cudaEnableDefault);  // cuTensorMapEncodeIm2col
  return reinterpret_cast<decltype(&cuTensorMapEncodeIm2col)>(function)(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 3, at, sizes, strides, corner, corner, 32, 16, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                                                        CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}
void refused(torch::Tensor y, int how) {
  if (how == 7) encode_im2col(y.data_ptr());
  if (how == 8) encode(CU_TENSOR_MAP_INTERLEAVE_16B, CU_TENSOR_MAP_SWIZZLE_NONE, y.data_ptr());  // CU_TENSOR_MAP_INTERLEAVE_16B
  if (how < 7) refused_kernel<<<1, 32>>>(y.data_ptr<int>(), how);
}
