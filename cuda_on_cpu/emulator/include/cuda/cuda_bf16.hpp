// Includes bfloat16. The name of this header is an older one.
#pragma once
#include <cuda_bf16.h>
