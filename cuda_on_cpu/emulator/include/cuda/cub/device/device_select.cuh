// The device-wide algorithms of cub.
#pragma once
#include "emulator/cub_device.h"
