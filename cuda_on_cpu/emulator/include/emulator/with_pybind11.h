// Included after the light header for a source that uses pybind11, such as one with its own PYBIND11_MODULE.
#pragma once
#define EMULATOR_WITH_PYBIND11
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
