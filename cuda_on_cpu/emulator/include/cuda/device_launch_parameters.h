// threadIdx and the other built-in variables. Editors need this header, the compiler does not.
#pragma once
#include "emulator/kernel.h"
