// The C++ front end, of which extensions use the tensors.
#pragma once
#include <torch/extension.h>
