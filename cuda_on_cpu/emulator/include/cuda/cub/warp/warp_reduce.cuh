// The parts of cub that work within a block.
#pragma once
#include "emulator/cub_block.h"
