// Nothing to export here.
#pragma once
#define C10_CUDA_API
