// Cooperative groups: thread blocks, tiles of a warp, coalesced lanes, and the grid of a cooperative launch.
// https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cooperative-groups
#pragma once
#include "emulator/cooperative_groups.h"
