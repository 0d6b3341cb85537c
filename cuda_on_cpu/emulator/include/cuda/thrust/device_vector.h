// The vectors, pointers and policies of thrust.
#pragma once
#include "emulator/thrust_vectors.h"
