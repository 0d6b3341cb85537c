// Takes the place of the header of torch's C++ front end. Most extensions that include that header use only tensors.
#pragma once
#include <torch/extension.h>
