// half precision, as CUDA has it.
#pragma once
#include "emulator/half.h"
