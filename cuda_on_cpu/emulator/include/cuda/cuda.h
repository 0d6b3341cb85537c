// The header of the driver API. It has only the version and the types, because extensions include it for these.
#pragma once
#include "emulator/host.h"

#define CUDA_VERSION 13000
typedef cudaStream_t CUstream;
