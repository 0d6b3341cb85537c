// The algorithms of thrust.
#pragma once
#include "emulator/thrust_algorithms.h"
