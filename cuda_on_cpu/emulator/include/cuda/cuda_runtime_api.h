// The CUDA runtime's host side.
#pragma once
#include "emulator/host.h"
