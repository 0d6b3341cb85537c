// Texture objects.
#pragma once
#include <cuda_runtime.h>
