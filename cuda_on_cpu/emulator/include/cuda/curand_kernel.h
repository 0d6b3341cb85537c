// cuRAND's device functions.
#pragma once
#include "emulator/curand_device.h"
