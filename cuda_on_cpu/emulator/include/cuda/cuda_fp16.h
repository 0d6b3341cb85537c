// Half precision with CUDA's names.
#pragma once
#include "emulator/half.h"
