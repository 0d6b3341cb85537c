// The iterators of thrust.
#pragma once
#include "emulator/thrust_iterators.h"
