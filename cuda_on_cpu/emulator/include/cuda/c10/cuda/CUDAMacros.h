// The export macros, which are empty here.
#pragma once
#define C10_CUDA_API
