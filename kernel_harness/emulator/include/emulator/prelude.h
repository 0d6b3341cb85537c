// Includes the headers that load_inline includes before every source. This header is precompiled once for all
// candidates.
#include <cuda_runtime.h>

#include <torch/extension.h>

#include <cuda.h>

#include "emulator/device_side.h"
#include "kernel_harness/bindings.h"

// torch's header declares this function only for device code, and was compiled as host code.
namespace c10 {
inline Half __ldg(const Half* address) { return *address; }
}  // namespace c10
