// Asynchronous copies: all threads of a group make a copy together, and wait for it together.
#pragma once
#include <cooperative_groups.h>

#include "emulator/group_copy.h"
