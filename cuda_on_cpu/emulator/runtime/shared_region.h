// The shared memory of one block, between two ranges without memory, so that an access past its end is a fault.
#pragma once
#include <cstddef>

namespace emulator {

class SharedRegion {
 public:
  // The bytes without memory at each end. A block's shared memory has 227 KiB at most.
  static constexpr std::size_t kGuard = 256 * 1024;
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
