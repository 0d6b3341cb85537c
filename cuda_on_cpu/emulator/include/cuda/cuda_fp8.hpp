// The second half of CUDA's header.
#pragma once
#include "cuda_fp8.h"
