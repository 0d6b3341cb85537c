// From here on, a source is compiled as plain C++ without CUDA's macros, as load_inline compiles a C++ source.
#pragma once
#undef __CUDACC__
#undef __NVCC__
#undef __CUDA_ARCH__
#undef __CUDA_ARCH_LIST__
