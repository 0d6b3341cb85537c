// What torch/types.h declares in namespace torch beside autograd. All light headers have it: the emulator's include
// it, and those that light_headers.py writes contain its text.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace torch {
using namespace at;
// torch's own `tensor` has another meaning than at::tensor, so a header that uses it must not compile here.
template <class... T>
Tensor tensor(const T&...) = delete;
using std::nullopt;
using std::optional;
using Dtype = at::ScalarType;
constexpr auto kUInt8 = at::kByte, kInt8 = at::kChar, kInt16 = at::kShort, kInt32 = at::kInt, kInt64 = at::kLong;
constexpr auto kUInt16 = at::kUInt16, kUInt32 = at::kUInt32, kUInt64 = at::kUInt64;
constexpr auto kFloat16 = at::kHalf, kFloat32 = at::kFloat, kFloat64 = at::kDouble;
constexpr auto kU8 = kUInt8, kU16 = kUInt16, kU32 = kUInt32, kU64 = kUInt64;
constexpr auto kI8 = kInt8, kI16 = kInt16, kI32 = kInt32, kI64 = kInt64;
constexpr auto kF16 = kFloat16, kF32 = kFloat32, kF64 = kFloat64;
}  // namespace torch
