// make_float4 and the other constructors of vector types.
#pragma once
#include "emulator/vectors.h"
