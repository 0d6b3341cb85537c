// The driver API's header; extensions include it for its version and types.
#pragma once
#include "emulator/host.h"

#define CUDA_VERSION 13000
typedef cudaStream_t CUstream;
