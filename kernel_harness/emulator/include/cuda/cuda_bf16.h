// bfloat16, as CUDA has it; its header brings half precision with it.
#pragma once
#include <cuda_fp16.h>

#include "emulator/bfloat16.h"
