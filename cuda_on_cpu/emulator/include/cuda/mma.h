// Tensor cores through nvcuda::wmma.
#pragma once
#include <cuda_bf16.h>

#include "emulator/wmma.h"
