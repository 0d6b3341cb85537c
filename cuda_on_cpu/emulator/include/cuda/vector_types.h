// float4 and the other vector types.
#pragma once
#include "emulator/vectors.h"
