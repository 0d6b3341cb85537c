// What load_inline puts before every source, precompiled once for all candidates.
#include <torch/extension.h>

#include <cuda.h>
#include <cuda_runtime.h>

#include "kernel_harness/bindings.h"
