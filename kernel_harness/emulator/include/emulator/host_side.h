// A C++ source is read by the host's compiler, which knows nothing of CUDA.
#pragma once
#undef __CUDACC__
#undef __NVCC__
#undef __CUDA_ARCH__
#undef __CUDA_ARCH_LIST__
