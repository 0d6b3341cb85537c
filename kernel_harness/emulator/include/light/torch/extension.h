// What extensions use of torch/extension.h: tensors and their operators. Left out are the C++ front end (torch/nn.h
// and the rest) and pybind11, which take most of the compiler's time: the first is left to a build with the real
// header, the second is included where a source binds itself.
#pragma once
#include <torch/types.h>
#ifdef EMULATOR_WITH_PYBIND11
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#endif
