// cub, as far as it works within a block.
#pragma once
#include "emulator/cub_block.h"
