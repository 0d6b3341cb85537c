// Instructions of inline PTX on one thread. Row r of a result has the values of the r-th instruction of its kernel.
#include <torch/extension.h>
#include <cuda_fp16.h>

#include <cstdint>

static __global__ void words_kernel(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int row = 0;
  const auto next = [&]() -> uint32_t& { return out[n * row++ + i]; };
  const uint32_t u = a[i], v = b[i], w = c[i];
  const uint16_t u16 = u, v16 = v, w16 = w;
  uint16_t half;
  asm("shf.l.wrap.b32 %0, %1, %2, %3;" : "=r"(next()) : "r"(u), "r"(v), "r"(w));
  asm("shf.l.clamp.b32 %0, %1, %2, %3;" : "=r"(next()) : "r"(u), "r"(v), "r"(w));
  asm("shf.r.wrap.b32 %0, %1, %2, %3;" : "=r"(next()) : "r"(u), "r"(v), "r"(w));
  asm("shf.r.clamp.b32 %0, %1, %2, %3;" : "=r"(next()) : "r"(u), "r"(v), "r"(w));
  asm("bmsk.wrap.b32 %0, %2, %3;" : "=r"(next()) : "r"(u), "r"(v), "r"(w));
  asm("bmsk.clamp.b32 %0, %2, %3;" : "=r"(next()) : "r"(u), "r"(v), "r"(w));
  asm("szext.wrap.u32 %0, %1, %3;" : "=r"(next()) : "r"(u), "r"(v), "r"(w));
  asm("szext.clamp.u32 %0, %1, %3;" : "=r"(next()) : "r"(u), "r"(v), "r"(w));
  asm("szext.wrap.s32 %0, %1, %3;" : "=r"(next()) : "r"(u), "r"(v), "r"(w));
  asm("szext.clamp.s32 %0, %1, %3;" : "=r"(next()) : "r"(u), "r"(v), "r"(w));
  asm("cnot.b32 %0, %1;" : "=r"(next()) : "r"(u), "r"(v), "r"(w));
  asm("cnot.b16 %0, %1;" : "=h"(half) : "h"(u16), "h"(v16), "h"(w16));
  next() = half;
  asm("sad.u32 %0, %1, %2, %3;" : "=r"(next()) : "r"(u), "r"(v), "r"(w));
  asm("sad.s32 %0, %1, %2, %3;" : "=r"(next()) : "r"(u), "r"(v), "r"(w));
  asm("sad.u16 %0, %1, %2, %3;" : "=h"(half) : "h"(u16), "h"(v16), "h"(w16));
  next() = half;
  asm("sad.s16 %0, %1, %2, %3;" : "=h"(half) : "h"(u16), "h"(v16), "h"(w16));
  next() = half;
  asm("slct.u32.s32 %0, %1, %2, %3;" : "=r"(next()) : "r"(u), "r"(v), "r"(w));
  asm("slct.b32.f32 %0, %1, %2, %3;" : "=r"(next()) : "r"(u), "r"(v), "f"(__uint_as_float(w)));
  asm("slct.ftz.b32.f32 %0, %1, %2, %3;" : "=r"(next()) : "r"(u), "r"(v), "f"(__uint_as_float(w)));
  uint64_t big;
  asm("sad.u64 %0, %1, %2, %3;" : "=l"(big) : "l"(uint64_t{u} << 32), "l"(uint64_t{v} << 32 | 1), "l"(uint64_t{w}));
  next() = static_cast<uint32_t>(big >> 32) ^ static_cast<uint32_t>(big);
  asm("cnot.b64 %0, %1;" : "=l"(big) : "l"(uint64_t{u} << 32));
  next() = static_cast<uint32_t>(big);
  asm("fns.b32 %0, %1, %2, %3;" : "=r"(next()) : "r"(u), "r"(v & 31), "r"(static_cast<int>(w & 15) - 8));
  asm("vadd.u32.u32.u32 %0, %1.b1, %2.h1;" : "=r"(next()) : "r"(u), "r"(v), "r"(w));
  asm("vsub.s32.s32.u32.sat %0.h0, %1, %2.b3, %3;" : "=r"(next()) : "r"(u), "r"(v), "r"(w));
  asm("vabsdiff.u32.s32.s32.add %0, %1.h0, %2.h1, %3;" : "=r"(next()) : "r"(u), "r"(v), "r"(w));
  asm("{ .reg .u32 t; mov.u32 t, %1; vmin.s32.u32.s32.max %0, t.b2, %2, %3; }" : "=r"(next()) : "r"(u), "r"(v), "r"(w));
  asm("vmax.u32.s32.u32.sat %0.b2, %1.h1, %2, %3;" : "=r"(next()) : "r"(u), "r"(v), "r"(w));
  asm("vsub.u32.u32.u32.sat %0, %1, %2;" : "=r"(next()) : "r"(u), "r"(v), "r"(w));
}

static __device__ uint32_t bits_of(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
static __device__ float low_half(uint32_t pair) { return __half2float(reinterpret_cast<const __half2*>(&pair)->x); }
static __global__ void floats_kernel(const float* a, const float* b, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int row = 0;
  const auto next = [&]() -> float& { return out[n * row++ + i]; };
  const float x = a[i], y = b[i];
  const double wide = x;
  uint32_t is, pair;
  asm("copysign.f32 %0, %1, %2;" : "=f"(next()) : "f"(x), "f"(y));
  double copied;
  asm("copysign.f64 %0, %1, %2;" : "=d"(copied) : "d"(wide), "d"(static_cast<double>(y)));
  next() = static_cast<float>(copied);
  asm("{ .reg .pred p; testp.finite.f32 p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(is) : "f"(x));
  next() = is;
  asm("{ .reg .pred p; testp.infinite.f32 p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(is) : "f"(x));
  next() = is;
  asm("{ .reg .pred p; testp.number.f32 p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(is) : "f"(x));
  next() = is;
  asm("{ .reg .pred p; testp.notanumber.f32 p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(is) : "f"(x));
  next() = is;
  asm("{ .reg .pred p; testp.normal.f32 p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(is) : "f"(x));
  next() = is;
  asm("{ .reg .pred p; testp.subnormal.f32 p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(is) : "f"(x));
  next() = is;
  asm("{ .reg .pred p; testp.normal.f64 p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(is) : "d"(wide));
  next() = is;
  asm("min.xorsign.abs.f32 %0, %1, %2;" : "=f"(next()) : "f"(x), "f"(y));
  asm("max.xorsign.abs.f32 %0, %1, %2;" : "=f"(next()) : "f"(x), "f"(y));
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(next()) : "f"(x), "f"(y));
  asm("max.NaN.xorsign.abs.f32 %0, %1, %2;" : "=f"(next()) : "f"(x), "f"(y));
  asm("min.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(bits_of(x, y)), "r"(bits_of(y, x)));
  next() = low_half(pair);
  asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(bits_of(x, y)), "r"(bits_of(y, x)));
  next() = low_half(pair);
  asm("add.f32 %0, %1, 1.5;" : "=f"(next()) : "f"(x), "f"(y));
  asm("{ .reg .f32 t; mov.f32 t, -2.5e-1; add.f32 t, t, 3.; mul.f32 %0, t, 1e1; }" : "=f"(next()) : "f"(x), "f"(y));  // 27.5
  double sum;
  asm("add.f64 %0, %1, 0dC000000000000000;" : "=d"(sum) : "d"(wide));  // -2
  next() = static_cast<float>(sum);
}

// For each block: the registers, and the number of threads that read the same ones.
static __global__ void registers_kernel(uint32_t* out) {
  __shared__ uint32_t of_first[16], same;
  extern __shared__ uint32_t dynamic[];
  uint32_t r[16] = {};
  uint64_t grid, clock_before, clock_after, timer_before, timer_after;
  uint32_t clock_high, timer_low, timer_high;
  asm("mov.u32 %0, %%smid;" : "=r"(r[0]));
  asm("mov.u32 %0, %%nsmid;" : "=r"(r[1]));
  asm("mov.u32 %0, %%nwarpid;" : "=r"(r[2]));
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(r[3]));
  asm("mov.u32 %0, %%total_smem_size;" : "=r"(r[4]));
  asm("mov.u64 %0, %%gridid;" : "=l"(grid));
  r[5] = static_cast<uint32_t>(grid);
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(clock_before));
  asm volatile("mov.u32 %0, %%clock_hi;" : "=r"(clock_high));
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(clock_after));
  r[6] = clock_high >= clock_before >> 32 && clock_high <= clock_after >> 32;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(timer_before));
  asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(timer_low));
  asm volatile("mov.u32 %0, %%globaltimer_hi;" : "=r"(timer_high));
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(timer_after));
  const uint64_t before = timer_before, after = timer_after, high = timer_high;
  r[7] = high >= before >> 32 && high <= after >> 32;
  r[8] = before >> 32 != after >> 32 || (timer_low >= static_cast<uint32_t>(before) && timer_low <= static_cast<uint32_t>(after));
  if (threadIdx.x == 0) same = dynamic[0] = 0;
  if (threadIdx.x == 0)
    for (int k = 0; k < 16; ++k) of_first[k] = r[k];
  __syncthreads();
  bool equal = true;
  for (int k = 0; k < 9; ++k) equal &= r[k] == of_first[k];
  if (equal) atomicAdd(&same, 1);
  __syncthreads();
  if (threadIdx.x < 9) out[blockIdx.x * 10 + threadIdx.x] = r[threadIdx.x];
  if (threadIdx.x == 9) out[blockIdx.x * 10 + 9] = same;
}

static __device__ int spaces_of(const void* address) {
  uint32_t in, bits = 0;
  asm("{ .reg .pred p; isspacep.global p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(in) : "l"(address));
  bits = bits << 1 | in;
  asm("{ .reg .pred p; isspacep.shared p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(in) : "l"(address));
  bits = bits << 1 | in;
  asm("{ .reg .pred p; isspacep.shared::cta p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(in) : "l"(address));
  bits = bits << 1 | in;
  asm("{ .reg .pred p; isspacep.local p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(in) : "l"(address));
  bits = bits << 1 | in;
  return static_cast<int>(bits);
}
static __global__ void spaces_kernel(int* out, const int* last) {
  __shared__ int fixed[4];
  extern __shared__ uint32_t dynamic[];
  volatile int local[4];
  local[threadIdx.x % 4] = 0, fixed[0] = 0, dynamic[0] = 0;
  int* allocated = static_cast<int*>(malloc(4));
  out[0] = spaces_of(out), out[1] = spaces_of(last);
  out[2] = spaces_of(fixed), out[3] = spaces_of(&fixed[3]), out[4] = spaces_of(dynamic);
  out[5] = spaces_of(const_cast<const int*>(&local[threadIdx.x % 4]));
  out[6] = spaces_of(allocated);
  free(allocated);
}
static __constant__ int constants[4];
static __global__ void constants_kernel(int* out, bool asks_ptx) { out[0] = asks_ptx ? spaces_of(constants) : __isGlobal(constants); }

// Loads with a policy for the cache, and results that are not wanted.
static __global__ void hints_kernel(const float* x, float* y, int* count) {
  uint64_t policy, range;
  asm("createpolicy.fractional.L2::evict_first.L2::evict_unchanged.b64 %0, 0.5;" : "=l"(policy));
  asm("createpolicy.range.global.L2::evict_last.L2::evict_unchanged.b64 %0, [%1], 0x1000, 0x2000;" : "=l"(range) : "l"(x));
  asm volatile("{ .reg .b64 p; createpolicy.fractional.L2::evict_last.b64 p, 1.0;\n ld.global.L2::cache_hint.f32 %0, [%1], p; }" : "=f"(y[0]) : "l"(x));
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v2.f32 {%0, _}, [%1+8], %2;" : "=f"(y[1]) : "l"(x), "l"(policy));
  asm volatile("ld.global.v4.f32 {_, _, %0, _}, [%1];" : "=f"(y[2]) : "l"(x + 4));
  asm volatile("st.global.L2::cache_hint.f32 [%0], %1, %2;" ::"l"(y + 3), "f"(x[3]), "l"(range) : "memory");
  asm volatile("atom.global.add.L2::cache_hint.s32 _, [%0], 5, %1;" ::"l"(count), "l"(policy) : "memory");
  asm volatile("red.global.add.L2::cache_hint.s32 [%0], 7, %1;" ::"l"(count), "l"(policy) : "memory");
  uint32_t high;
  asm("mov.b64 {_, %0}, %1;" : "=r"(high) : "l"(static_cast<uint64_t>(11) << 32 | 13));
  atomicAdd(count, static_cast<int>(high));
  asm volatile("applypriority.global.L2::evict_normal [%0], 128;" ::"l"(x) : "memory");
  asm volatile("discard.global.L2 [%0], 128;" ::"l"(y + 32) : "memory");
  asm volatile("pmevent 1;");
}

static uint32_t* words_of(torch::Tensor t) { return reinterpret_cast<uint32_t*>(t.data_ptr<int>()); }
torch::Tensor words(torch::Tensor a, torch::Tensor b, torch::Tensor c) {
  const int n = a.numel();
  auto out = torch::empty({28, n}, a.options());
  words_kernel<<<(n + 63) / 64, 64>>>(words_of(a), words_of(b), words_of(c), words_of(out), n);
  return out;
}
torch::Tensor floats(torch::Tensor a, torch::Tensor b) {
  const int n = a.numel();
  auto out = torch::empty({18, n}, a.options());
  floats_kernel<<<(n + 63) / 64, 64>>>(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), n);
  return out;
}
torch::Tensor registers(int blocks, int bytes) {
  auto out = torch::empty({blocks, 10}, torch::device(torch::kCUDA).dtype(torch::kInt));
  registers_kernel<<<blocks, 64, bytes>>>(words_of(out));
  return out;
}
torch::Tensor spaces(torch::Tensor x) {
  auto out = torch::empty({7}, x.options());
  spaces_kernel<<<1, 1, 16>>>(out.data_ptr<int>(), x.data_ptr<int>() + x.numel() - 1);
  return out;
}
void space_of_a_variable(torch::Tensor out, bool asks_ptx) { constants_kernel<<<1, 1>>>(out.data_ptr<int>(), asks_ptx); }
void hints(torch::Tensor x, torch::Tensor y, torch::Tensor count) { hints_kernel<<<1, 1>>>(x.data_ptr<float>(), y.data_ptr<float>(), count.data_ptr<int>()); }
