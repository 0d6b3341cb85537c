// The second half of CUDA's header.
#pragma once
#include "cuda_fp4.h"
