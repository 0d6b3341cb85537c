// Replaces torch/extension.h by the part that extensions use: tensors and their operators. The other parts, the C++
// front end (torch/nn.h and others) and pybind11, take most of the compile time. A source that uses the front end is
// built with torch's own header. A source with its own PYBIND11_MODULE gets emulator/with_pybind11.h in addition.
#pragma once
#include <torch/types.h>
#include <torch/version.h>
