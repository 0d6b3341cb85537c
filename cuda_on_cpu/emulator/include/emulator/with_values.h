// Included after the light header for a source that uses lists of tensors or indices in braces. torch declares these
// beside the values of its interpreter, whose templates take more than half of such a source's compile time.
#pragma once
#include <ATen/TensorIndexing.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
