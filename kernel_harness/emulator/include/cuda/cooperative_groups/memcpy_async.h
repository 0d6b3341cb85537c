// Copies that a group makes together and waits for together.
#pragma once
#include <cooperative_groups.h>

#include "emulator/group_copy.h"
