// TF32, in which a GPU multiplies float32 matrices if the program allows it. The operands are rounded to ten fraction
// bits, to nearest, and the products are summed in float32. cuBLAS 13 on an H200 does the same for a request of half or
// bfloat16 products of float32 matrices.
#pragma once
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <cstring>

namespace emulator {

// Returns whether torch's settings allow TF32 in products of matrices. torch throws if one of its two ways to set this
// allows TF32 and the other one does not.
inline bool torch_allows_tf32() {
  if (at::NoTF32Guard::should_disable_tf32()) return false;
  try {
    return at::globalContext().allowTF32CuBLAS();
  } catch (const c10::Error&) {
    return true;
  }
}

// Returns a copy of a float32 tensor on the host, rounded to TF32. Infinities and NaN stay.
inline at::Tensor rounded_to_tf32(const at::Tensor& tensor) {
  const at::Tensor out = tensor.clone(at::MemoryFormat::Contiguous);
  auto* numbers = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < out.numel(); ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, numbers + i, sizeof bits);
    if ((bits & 0x7F800000u) != 0x7F800000u) bits = (bits + 0x1000u) & ~0x1FFFu;
    std::memcpy(numbers + i, &bits, sizeof bits);
  }
  return out;
}

}  // namespace emulator
