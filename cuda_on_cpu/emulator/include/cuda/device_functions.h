// Includes the device functions. The name of this header is an older one.
#pragma once
#include "emulator/kernel.h"
