// From here on, a source is compiled as device code. torch's headers are included before and compiled as host code.
#pragma once
#define __CUDA_ARCH__ 900
#define __CUDA_ARCH_LIST__ 900
#define __CUDA_ARCH_FEAT_SM90_ALL 1
