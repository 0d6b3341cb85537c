// The types of the CUDA runtime.
#pragma once
#include "emulator/host.h"
