// Reductions over tiles and coalesced lanes.
#pragma once
#include <cooperative_groups.h>

#include "emulator/group_algorithms.h"
