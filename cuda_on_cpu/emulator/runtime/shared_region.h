// The shared memory of one block, between two ranges without memory, so that an access past its end is a fault.
#pragma once
#include <cstddef>

namespace emulator {

class SharedRegion {
 public:
  // The bytes without memory at each end. A block's shared memory has 227 KiB at most.
  static constexpr std::size_t kGuard = 256 * 1024;
  // The bytes of memory outside of them. A program's buffer may lie next to the region, and an access past that buffer
  // must not meet a guard: torch gets a GPU's memory in pieces of 2 MiB, within which such an access is no fault.
  static constexpr std::size_t kMargin = 2 << 20;
  SharedRegion() = default;
  ~SharedRegion();
  SharedRegion(const SharedRegion&) = delete;
  SharedRegion& operator=(const SharedRegion&) = delete;

  // Makes room for `bytes`; what was there is lost.
  void resize(std::size_t bytes);
  char* end() const { return end_; }
  // Whether an address is in one of the ranges without memory.
  bool guards(const void* address) const;

 private:
  void release();
  char *start_ = nullptr, *end_ = nullptr;
};

}  // namespace emulator
