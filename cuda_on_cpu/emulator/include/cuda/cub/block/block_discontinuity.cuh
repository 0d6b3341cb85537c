// The part of cub that moves or sorts the items of a block.
#pragma once
#include "emulator/cub_tiles.h"
