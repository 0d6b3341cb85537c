// Needed where a source binds itself; otherwise the runtime's own bindings serve.
#pragma once
#ifdef EMULATOR_WITH_PYBIND11
#include_next <torch/csrc/Exceptions.h>
#endif
