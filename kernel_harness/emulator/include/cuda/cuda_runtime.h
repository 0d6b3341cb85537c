// The CUDA runtime, with the language's built-ins, as nvcc has them after this header.
#pragma once
#include "emulator/host.h"
#include "emulator/kernel.h"
#include "emulator/launch.h"

#ifndef __CUDACC__
#define __CUDACC__ 1
#endif
