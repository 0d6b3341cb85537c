// Includes half precision. The name of this header is an older one.
#pragma once
#include <cuda_fp16.h>
