// Replaces ATen/ATen.h by tensors. The headers of the operators that a source names, such as ATen/ops/relu.h, are included
// in addition: all of them together take more than half of the time in which this header is precompiled. The other parts
// of torch's own header belong to its interpreter.
#pragma once
#define AT_PER_OPERATOR_HEADERS  // else headers of torch include all operators
#include <ATen/DeviceGuard.h>
#include <ATen/DimVector.h>
#include <ATen/Dispatch.h>
#include <ATen/ScalarOps.h>
#include <ATen/Tensor.h>
#include <ATen/TensorGeometry.h>
#include <ATen/TensorOperators.h>
#include <ATen/Version.h>
#include <ATen/core/ATenGeneral.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Scalar.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Allocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/Layout.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/Exception.h>
