// bfloat16 with CUDA's names. As in CUDA, this header includes half precision.
#pragma once
#include <cuda_fp16.h>

#include "emulator/bfloat16.h"
