// The CUDA runtime, and the built-ins of the CUDA language.
#pragma once
#define __CUDA_RUNTIME_H__  // the helpers of CUDA's samples look which headers are there
#ifndef __CUDACC__
#define __CUDACC__ 1
#define __NVCC__ 1
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define __CUDACC_RELAXED_CONSTEXPR__ 1
#define __CUDACC_EXTENDED_LAMBDA__ 1
#endif

#include "emulator/host.h"
#include "emulator/kernel.h"
#include "emulator/launch.h"
#include "emulator/textures.h"
