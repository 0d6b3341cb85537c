// Types of the runtime.
#pragma once
#include "emulator/host.h"
