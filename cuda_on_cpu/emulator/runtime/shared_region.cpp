// Maps the shared memory of a block, with guard pages at both ends.
#include "shared_region.h"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

namespace emulator {
namespace {

constexpr std::size_t kOutside = SharedRegion::kGuard + SharedRegion::kMargin;

std::size_t in_pages(std::size_t bytes) {
  static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace

SharedRegion::~SharedRegion() { release(); }

void SharedRegion::release() {
  if (start_) munmap(start_ - kOutside, static_cast<std::size_t>(end_ - start_) + 2 * kOutside);
  start_ = end_ = nullptr;
}

void SharedRegion::resize(std::size_t bytes) {
  const std::size_t room = in_pages(bytes);
  if (start_ && room == static_cast<std::size_t>(end_ - start_)) return;
  release();
  void* low = mmap(nullptr, room + 2 * kOutside, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (low == MAP_FAILED) throw std::bad_alloc();
  start_ = static_cast<char*>(low) + kOutside, end_ = start_ + room;
  if (mprotect(start_ - kGuard, kGuard, PROT_NONE) || mprotect(end_, kGuard, PROT_NONE)) throw std::bad_alloc();
}

bool SharedRegion::guards(const void* address) const {
  const char* at = static_cast<const char*>(address);
  return start_ && ((at >= end_ && at < end_ + kGuard) || (at < start_ && at >= start_ - kGuard));
}

}  // namespace emulator
