// Includes the headers that load_inline includes before every source. This header is precompiled once for all
// candidates.
#include <cuda_runtime.h>

// With the first definition, torch's Half is converted by the processor's instructions, as by those of a GPU. Else torch's
// header computes the conversion in float32, because it takes this code for that of nvcc. The others replace what the
// header uses of <immintrin.h>, which would take a quarter of the time in which this header is precompiled.
#if defined(__F16C__) && defined(__x86_64__)
#define C10_X86_F16 1
#define _MM_FROUND_TO_NEAREST_INT 0
#define _cvtsh_ss(half) (__builtin_ia32_vcvtph2ps(::emulator::EightHalves{static_cast<short>(half)})[0])
#define _cvtss_sh(number, rounding) \
  static_cast<unsigned short>(__builtin_ia32_vcvtps2ph(::emulator::FourFloats{number}, rounding)[0])
namespace emulator {
typedef short EightHalves __attribute__((__vector_size__(16)));
typedef float FourFloats __attribute__((__vector_size__(16)));
}  // namespace emulator
#include <torch/headeronly/util/Half.h>
#undef _cvtss_sh
#undef _cvtsh_ss
#undef _MM_FROUND_TO_NEAREST_INT
#endif

#include <torch/extension.h>

#include <cuda.h>

#include "emulator/device_side.h"
#include "cuda_on_cpu/bindings.h"

// torch's header declares this function only for device code, and was compiled as host code.
namespace c10 {
inline Half __ldg(const Half* address) { return *address; }
}  // namespace c10
