// cublasLtMatmul with the epilogues for bias, ReLU and GELU.
#pragma once
#include "emulator/cublas_lt.h"
