// make_float4 and its kin.
#pragma once
#include "emulator/vectors.h"
