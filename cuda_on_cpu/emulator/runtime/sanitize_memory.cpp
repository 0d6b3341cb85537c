// Allocates memory with unused room around it, and keeps the regions of memory with the records of their last accesses.
#include <sys/mman.h>

#include <cstring>
#include <mutex>

#include "sanitize_state.h"

namespace emulator::sanitize {
namespace {

constexpr std::size_t kAlignment = 4096;

std::size_t rounded(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Reserves address space. A page takes physical memory only when it is written.
void* reserve(std::size_t bytes) {
  void* got = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return got == MAP_FAILED ? nullptr : got;
}

std::size_t grain_bytes(const Region& region) { return (region.bytes / kGrain + 2) * sizeof(Grain); }

void erase_records(Region& region) {
  if (region.grains) munmap(region.grains, grain_bytes(region));
  region.grains = nullptr;
}

}  // namespace

void* take_zoned(std::size_t bytes) {
  auto* start = static_cast<char*>(reserve(rounded(bytes) + 2 * kZone));
  return start ? start + kZone : nullptr;
}

void* take_zoned_behind(std::size_t bytes, const char* address) {
  constexpr std::size_t kWindow = 1 << 18;
  const std::size_t whole = rounded(bytes) + 2 * kZone;
  auto* start = static_cast<char*>(reserve(whole + kWindow));
  if (!start) return nullptr;
  const std::size_t head = (rounded(reinterpret_cast<std::uintptr_t>(address)) - reinterpret_cast<std::uintptr_t>(start)) % kWindow;  // kZone is a multiple
  if (head) munmap(start, head);
  munmap(start + head + whole, kWindow - head);
  return start + head + kZone;
}

void free_zoned(void* address, std::size_t bytes) {
  if (address) munmap(static_cast<char*>(address) - kZone, rounded(bytes) + 2 * kZone);
}

namespace {
std::mutex host_mutex;
std::map<const void*, std::size_t>& host_blocks() {
  static auto* blocks = new std::map<const void*, std::size_t>;
  return *blocks;
}
}  // namespace

// Allocates memory for a host tensor. It has room around it, too, because torch's CPU kernels allocate the results of
// operators as host tensors, which then become device tensors.
void* take_for_host(std::size_t bytes) {
  void* address = take_zoned(bytes);
  std::lock_guard lock(host_mutex);
  if (address) host_blocks()[address] = bytes;
  return address;
}

void free_for_host(void* address) {
  std::lock_guard lock(host_mutex);
  const auto found = host_blocks().find(address);
  if (found == host_blocks().end()) return;
  free_zoned(address, found->second);
  host_blocks().erase(found);
}

bool is_for_host(const void* address) {
  std::lock_guard lock(host_mutex);
  return host_blocks().count(address);
}

Memory& memory() {
  static auto* all = new Memory;  // never destroyed, because static objects may free tensors at exit
  return *all;
}

Region* Memory::add(const Region& what) {
  drop(what.base);
  std::lock_guard lock(mutex_);
  return regions_[what.base] = new Region(what);
}

// Marks a region as freed. Until the call ends, the region stays known and its addresses are not reused, so that a use
// after free is found.
void Memory::drop(const void* base) {
  std::lock_guard lock(mutex_);
  auto found = regions_.find(static_cast<const char*>(base));
  if (found == regions_.end() || !found->second->live) return;
  Region* region = found->second;
  region->live = false;
  if (recent_ == region) recent_ = nullptr;
  erase_records(*region);
  dead_.push_back(region);
  if (!region->owned) regions_.erase(found);
}

void Memory::forget_dead() {
  for (Region* region : dead_) {
    auto found = regions_.find(region->base);
    if (found != regions_.end() && found->second == region) {
      regions_.erase(found);
      free_zoned(const_cast<char*>(region->base), region->bytes);
    }
    delete region;
  }
  dead_.clear();
  recent_ = nullptr;
}

Region* Memory::at(const char* p) {
  if (recent_ && recent_->holds(p)) return recent_;
  auto after = regions_.upper_bound(p);
  if (after == regions_.begin()) return nullptr;
  Region* region = (--after)->second;
  if (!region->holds(p)) return nullptr;
  return recent_ = region;
}

const Region* Memory::nearest(const char* p) const {
  auto after = regions_.upper_bound(p);
  const Region* above = after == regions_.end() ? nullptr : after->second;
  const Region* below = after == regions_.begin() ? nullptr : std::prev(after)->second;
  if (!above || !below) return above ? above : below;
  return p - (below->base + below->bytes) <= above->base - p ? below : above;
}

void Memory::ready(Region& region) {
  if (!region.grains) region.grains = static_cast<Grain*>(reserve(grain_bytes(region)));
}

void* allocate(std::size_t bytes) {
  void* address = take_zoned(bytes);
  if (!address) return nullptr;
  memory().add({.base = static_cast<const char*>(address), .bytes = bytes, .owned = true, .zoned = true});
  return address;
}

void release(void* address) { memory().drop(address); }

void adopt(const void* address, std::size_t bytes) {
  memory().add({.base = static_cast<const char*>(address), .bytes = bytes, .zoned = is_for_host(address), .filled = true});
}

void forget(const void* address) { memory().drop(address); }

void written_by_host(const void* address, std::size_t bytes) {
  Region* region = memory().at(static_cast<const char*>(address));
  if (!region || region->filled) return;
  std::size_t at = static_cast<std::size_t>(static_cast<const char*>(address) - region->base);
  if (at == 0 && bytes >= region->bytes) {
    region->filled = true;
    return;
  }
  memory().ready(*region);
  for (const std::size_t end = std::min(at + bytes, region->bytes); at < end; ++at) {
    Grain& g = region->grains[at / kGrain];
    g.filled_since = 1;
    g.filled |= 1u << at % kGrain;
  }
}

}  // namespace emulator::sanitize
