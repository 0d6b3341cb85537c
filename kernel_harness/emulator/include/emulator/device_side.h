// From here on the source is compiled as device code. Torch's headers, read before, are compiled as the host's.
#pragma once
#define __CUDA_ARCH__ 900
#define __CUDA_ARCH_LIST__ 900
#define __CUDA_ARCH_FEAT_SM90_ALL 1
