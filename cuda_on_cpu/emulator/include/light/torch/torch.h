// Replaces the header of torch's C++ front end. Extensions include it, but use only tensors.
#pragma once
#include <torch/extension.h>
