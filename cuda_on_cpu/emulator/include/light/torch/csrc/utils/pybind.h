// Includes torch's own header for a source with its own PYBIND11_MODULE. Any other source does not need the header,
// because the library of bindings binds its functions.
#pragma once
#ifdef EMULATOR_WITH_PYBIND11
#include_next <torch/csrc/utils/pybind.h>
#endif
