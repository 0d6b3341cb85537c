// What load_inline puts before every source, precompiled once for all candidates.
#include <torch/extension.h>

#include <cuda.h>
#include <cuda_runtime.h>

#include "kernel_harness/bindings.h"

// torch's headers declare this for CUDA's own compilers only.
namespace at {
template <class T>
struct RestrictPtrTraits {
  using PtrType = T* __restrict__;
};
}  // namespace at
