// Profiler marks, which do nothing.
#pragma once
#include "emulator/host.h"
