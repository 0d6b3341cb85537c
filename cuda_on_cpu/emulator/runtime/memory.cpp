// Implements the registry of device memory as an ordered map from start address to size.
#include "emulator/memory.h"

#include "emulator/host.h"
#include "emulator/sanitize.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <shared_mutex>

namespace emulator {
namespace {

// The alignment that CUDA documents for cudaMalloc.
constexpr std::size_t kAlignment = 256;

struct Range {
  std::size_t bytes;
  bool owned, pinned = false;
};

std::shared_mutex mutex;
std::map<const char*, Range>& ranges() {
  static auto* map = new std::map<const char*, Range>;  // never destroyed: static objects free tensors at exit
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

// Returns the range of device memory that an address is in, or null.
const Range* range_of(const void* address) {
  auto* wanted = static_cast<const char*>(address);
  auto after = ranges().upper_bound(wanted);
  if (after == ranges().begin()) return nullptr;
  --after;
  // The address behind the last byte is allowed, because an empty tensor or an end iterator may have it.
  return wanted <= after->first + after->second.bytes ? &after->second : nullptr;
}

}  // namespace

void* allocate(std::size_t bytes) {
  std::size_t room = (bytes + kAlignment) / kAlignment * kAlignment;
  if (is_dry()) {
    void* address = ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) end_dry_run();
    put(address, {bytes, true});
    return address;
  }
  void* address = sanitize::on ? sanitize::allocate(bytes) : std::aligned_alloc(kAlignment, room);
  if (!address) return nullptr;
  std::memset(address, 0xFF, sanitize::on ? bytes : room);
  put(address, {bytes, true});
  return address;
}

// Late work may use the memory. On a GPU such a program must wait first, but here it would change other data.
bool release(void* address) {
  do_all_late_work();
  if (!take(address, true)) return false;
  if (!is_dry()) sanitize::on ? sanitize::release(address) : std::free(address);
  return true;
}

void adopt(const void* address, std::size_t bytes, bool pinned) {
  put(address, {bytes, false, pinned});
  if (sanitize::on) sanitize::adopt(address, bytes);
}

void forget(const void* address) {
  take(address, false);
  if (sanitize::on) sanitize::forget(address);
}

void written_by_library(const void* address, std::size_t bytes) {
  if (sanitize::on) sanitize::written_by_host(address, bytes);
}

void pin(const void* address) {
  std::unique_lock lock(mutex);
  const auto found = ranges().find(static_cast<const char*>(address));
  if (found != ranges().end()) found->second.pinned = true;
}

bool is_device(const void* address) {
  std::shared_lock lock(mutex);
  return range_of(address);
}

bool is_pinned(const void* address) {
  std::shared_lock lock(mutex);
  const Range* range = range_of(address);
  return range && range->pinned;
}

}  // namespace emulator
