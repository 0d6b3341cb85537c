// Includes the headers that load_inline includes before every source. This header is precompiled once for all
// candidates.
#include <cuda_runtime.h>

// With this definition, torch's Half is converted by the processor's instructions, as by those of a GPU. Else torch's
// header computes the conversion in float32, because it takes this code for that of nvcc.
#if defined(__F16C__) && defined(__x86_64__)
#include <immintrin.h>
#define C10_X86_F16 1
#endif

#include <torch/extension.h>

#include <cuda.h>

#include "emulator/device_side.h"
#include "kernel_harness/bindings.h"

// torch's header declares this function only for device code, and was compiled as host code.
namespace c10 {
inline Half __ldg(const Half* address) { return *address; }
}  // namespace c10
