// threadIdx and its kin, for editors; the compiler has them anyway.
#pragma once
#include "emulator/kernel.h"
