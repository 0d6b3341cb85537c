// cuBLAS level 3: column-major, with the library's own checks of its arguments.
#pragma once
#include "emulator/cublas.h"
