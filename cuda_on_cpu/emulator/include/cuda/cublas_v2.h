// The level 3 functions of cuBLAS. They check their arguments as cuBLAS does.
#pragma once
#include "emulator/cublas.h"
