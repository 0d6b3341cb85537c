// What load_inline puts before every source, precompiled once for all candidates.
#include <cuda_runtime.h>

#include <torch/extension.h>

#include <cuda.h>

#include "emulator/device_side.h"
#include "kernel_harness/bindings.h"

// torch's header declares this in device code only.
namespace c10 {
inline Half __ldg(const Half* address) { return *address; }
}  // namespace c10
