// The registry of device memory: an ordered map from start address to size.
#include "emulator/memory.h"

#include "emulator/sanitize.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>

namespace emulator {
namespace {

// cudaMalloc's documented alignment.
constexpr std::size_t kAlignment = 256;

struct Range {
  std::size_t bytes;
  bool owned;
};

std::shared_mutex mutex;
std::map<const char*, Range>& ranges() {
  static auto* map = new std::map<const char*, Range>;  // outlives every static that frees a tensor at exit
  return *map;
}

bool take(const void* address, bool owned) {
  std::unique_lock lock(mutex);
  auto found = ranges().find(static_cast<const char*>(address));
  if (found == ranges().end() || found->second.owned != owned) return false;
  ranges().erase(found);
  return true;
}

void put(const void* address, Range range) {
  std::unique_lock lock(mutex);
  ranges()[static_cast<const char*>(address)] = range;
}

}  // namespace

void* allocate(std::size_t bytes) {
  std::size_t room = (bytes + kAlignment) / kAlignment * kAlignment;
  void* address = sanitize::on ? sanitize::allocate(bytes) : std::aligned_alloc(kAlignment, room);
  if (!address) return nullptr;
  std::memset(address, 0xFF, sanitize::on ? bytes : room);
  put(address, {bytes, true});
  return address;
}

bool release(void* address) {
  if (!take(address, true)) return false;
  sanitize::on ? sanitize::release(address) : std::free(address);
  return true;
}

void adopt(const void* address, std::size_t bytes) {
  put(address, {bytes, false});
  if (sanitize::on) sanitize::adopt(address, bytes);
}

void forget(const void* address) {
  take(address, false);
  if (sanitize::on) sanitize::forget(address);
}

bool is_device(const void* address) {
  auto* wanted = static_cast<const char*>(address);
  std::shared_lock lock(mutex);
  auto after = ranges().upper_bound(wanted);
  if (after == ranges().begin()) return false;
  --after;
  // One past the end counts: an empty tensor's pointer, or an end iterator, is no mistake.
  return wanted <= after->first + after->second.bytes;
}

}  // namespace emulator
