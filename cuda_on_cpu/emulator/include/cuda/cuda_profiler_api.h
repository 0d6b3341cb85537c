// Profiler marks, which do nothing here.
#pragma once
#include "emulator/host.h"
