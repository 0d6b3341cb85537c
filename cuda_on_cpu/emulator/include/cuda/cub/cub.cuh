// cub: the collectives of blocks and warps, and the device-wide algorithms.
#pragma once
#include "emulator/cub_device.h"
#include "emulator/cub_tiles.h"
