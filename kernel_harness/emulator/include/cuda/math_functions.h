// Device functions under their older header.
#pragma once
#include "emulator/kernel.h"
