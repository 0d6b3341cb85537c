// Replaces ATen/DeviceGuard.h, which every operator's header includes. torch's own header also takes lists of tensors,
// and so includes the interpreter's values, whose templates take more than half of a source's compile time.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

#include <optional>

namespace at {
inline std::optional<Device> device_of(const Tensor& tensor) {
  return tensor.defined() ? std::optional<Device>(tensor.device()) : std::nullopt;
}
inline std::optional<Device> device_of(const std::optional<Tensor>& tensor) {
  return tensor ? device_of(*tensor) : std::nullopt;
}
}  // namespace at
