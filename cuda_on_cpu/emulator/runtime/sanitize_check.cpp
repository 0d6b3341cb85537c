// Checks one access: it must be inside a buffer, read only initialised memory, and be ordered with the accesses of
// other threads.
#include <dlfcn.h>

#include <algorithm>

#include "emulator/host.h"
#include "sanitize_watch.h"

namespace emulator::sanitize {
namespace {

// A finding names the nearest buffer only up to this distance.
constexpr std::size_t kFarFromStatic = 64 * 1024, kFar = std::size_t{1} << 36;

}  // namespace

void Watch::touch(const char* p, std::size_t bytes, bool write, Manner manner, const void* caller) {
  if (built_in_.holds(p) || !checks) return;
  if (block_->threads[thread_].stack.holds(p)) return check_registers(p, bytes, write, caller);
  settle();
  Region* region = memory().at(p);
  if (!region) {
    if (!known_elsewhere(p)) miss(p, bytes, write, caller);
    return;
  }
  if (region->place == Place::kStatic && named_)
    if (const Array* array = array_at(static_cast<std::size_t>(p - region->base), false); array && array->name.empty()) return;
  if (!region->live) return keep(Kind::kUseAfterFree, caller, *region, p, bytes);
  if (stray(*region, p, bytes)) return keep(write ? Kind::kOutOfBoundsWrite : Kind::kOutOfBoundsRead, caller, *region, p, bytes);
  if (write && region->read_only) keep(Kind::kInputWritten, caller, *region, p, bytes);
  memory().ready(*region);
  const bool orders = manner == Manner::kAtomic || manner == Manner::kVolatile;
  if (!shared(*region) && orders) sync(p);
  if (orders) took(&given_), gave(&given_);  // another thread may wait for it
  if (write && shared(*region) && !readings_.empty()) check_readings(*region, p, bytes, caller);
  if (manner != Manner::kUnit && shared(*region) && !arriving_.empty()) check_arriving(*region, p, bytes, write, caller);
  if (!write && manner != Manner::kUnit && unfilled(*region, p, bytes)) keep(Kind::kUninitialized, caller, *region, p, bytes);
  if (write) region->written_by = launch_;
  const std::size_t offset = static_cast<std::size_t>(p - region->base), end = offset + bytes;
  for (std::size_t at = offset; at < end;) {
    const std::size_t first = at % kGrain, n = std::min(kGrain - first, end - at);
    grain(*region, at / kGrain, static_cast<std::uint8_t>(((1u << n) - 1) << first), write, manner, caller);
    at += n;
  }
  if (write && manner == Manner::kAtomic) drop_guesses(p, bytes);
}

// Returns whether an access that begins in a region is out of bounds: it ends beyond the region or, in static shared
// memory, is not inside a single variable.
bool Watch::stray(const Region& region, const char* p, std::size_t bytes) const {
  const auto offset = static_cast<std::size_t>(p - region.base);
  if (offset + bytes > region.bytes) return true;
  if (region.place != Place::kStatic || !named_) return false;
  const Array* array = array_at(offset, false);
  return !array || offset + bytes > array->offset + array->bytes;
}

// Returns whether an address outside all buffers is memory that a kernel may read: memory of the emulator, or a
// constant of the library.
bool Watch::known_elsewhere(const char* p) const {
  if (host_stack_.holds(p) || library_.holds(p)) return true;
  for (const auto& [warp, range] : block_->ignored)
    if (range.holds(p)) return true;
  for (const Thread& thread : block_->threads)
    if (thread.stack.holds(p)) return true;
  Dl_info info;
  return dladdr(p, &info) != 0;
}

// Reports an access outside every buffer. If other data of this process is at the address, ends the emulated thread.
void Watch::miss(const char* p, std::size_t bytes, bool write, const void* caller) {
  Finding found = finding(write ? Kind::kOutOfBoundsWrite : Kind::kOutOfBoundsRead, caller);
  const Region* near = memory().nearest(p);
  const std::size_t away = !near          ? SIZE_MAX
                           : p < near->base ? static_cast<std::size_t>(near->base - p)
                                            : static_cast<std::size_t>(p - near->base) - near->bytes;
  if (reinterpret_cast<std::uintptr_t>(p) < 4096) {
    found.detail = "a null pointer";
  } else if (away < (near->place == Place::kStatic ? kFarFromStatic : kFar)) {
    locate(found, *near, p, bytes);
  }
  found.size = bytes;
  keep(found);
  if (near && near->zoned && away + bytes < kZone) return;
  end_thread();
}

// Reports an access through a pointer that is not a multiple of `alignment`. It could end this process.
void Watch::misaligned(const char* p, std::size_t alignment, const char* what, const void* caller) {
  settle();
  Finding found = finding(Kind::kMisaligned, caller);
  if (const Region* region = memory().at(p)) locate(found, *region, p, alignment);
  found.size = alignment;
  found.detail = what;
  keep(found);
  end_thread();
}

void Watch::trapped(const char* what, const void* caller) {
  settle();
  Finding found = finding(Kind::kTrap, caller);
  found.detail = what;
  keep(found);
  end_thread();
}

void Watch::end_thread() {
  launch_aborted = true;
  longjmp(block_->threads[thread_].end, 1);
}

void Watch::grain(Region& region, std::size_t index, std::uint8_t bytes, bool write, Manner manner, const void* caller) {
  Grain& g = region.grains[index];
  const char* p = region.base + index * kGrain;
  // A volatile access to device memory counts as atomic. One to shared memory is like any other: two threads need a
  // barrier between their accesses.
  const bool local = shared(region), atomic = manner == Manner::kAtomic || (manner == Manner::kVolatile && !local);
  if (conflicts(g.write, bytes, atomic, local)) {
    race(p, write, atomic, g.write, true, region, caller);
  } else if (write && (conflicts(g.read, bytes, atomic, local) || conflicts(g.elsewhere, bytes, atomic, local))) {
    race(p, write, atomic, conflicts(g.read, bytes, atomic, local) ? g.read : g.elsewhere, false, region, caller);
  }
  Access fresh = now(bytes, atomic, caller);
  if (manner == Manner::kUnit) fresh.thread |= kUnit;
  Access& last = write ? g.write : g.read;
  if (last.generation == fresh.generation && last.thread == fresh.thread && last.clock == fresh.clock) fresh.bytes |= last.bytes;
  else if (!write && last.thread != fresh.thread && !ordered(last, local)) g.elsewhere = last;
  last = fresh;
  if (!write) return;
  if (g.filled_since < fills_count_from(region)) g.filled_since = fills_count_from(region), g.filled = 0;
  g.filled |= bytes;
}

// ---------------------------------------------------------------------------------- initialised memory

// Returns the number of bytes that no observed access wrote and that still have their initial value.
std::size_t Watch::missing_bytes(const Region& region, const char* p, std::size_t bytes) const {
  const std::uint32_t since = fills_count_from(region);
  std::size_t missing = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    const std::size_t at = static_cast<std::size_t>(p - region.base) + i;
    const Grain& g = region.grains[at / kGrain];
    const bool filled = g.filled_since >= since && g.filled >> at % kGrain & 1;
    missing += !filled && static_cast<unsigned char>(p[i]) == 0xFF;
  }
  return missing;
}

bool Watch::unfilled(const Region& region, const char* p, std::size_t bytes) const {
  if (region.filled) return false;
  const std::size_t missing = missing_bytes(region, p, bytes);
  return missing >= (bytes > 16 ? bytes : std::min(bytes, kGrain));  // padding in a structure is never written
}

// ---------------------------------------------------------------------------------- order of accesses

// Returns whether, in every order of threads and blocks, access `a` happens before the running thread's present access.
bool Watch::ordered(const Access& a, bool shared) const {
  if (a.generation < (shared ? block_->first : launch_first_)) return shared || a.generation < first_generation_ || comes_before(launches[static_cast<std::size_t>(epoch(a).launch)].ticket, launches[static_cast<std::size_t>(launch_)].ticket);
  const Epoch& then = epoch(a);
  const unsigned other = a.thread & kThreadBits;
  if (then.block != block_->number) return shared || published(then.block, a.generation);
  if (a.generation != block_->generation || other == thread_) return true;
  if (!shared && published(then.block, a.generation)) return true;
  const Clocks& warp = block_->clocks[thread_ / kWarpSize];
  return other / kWarpSize == thread_ / kWarpSize && warp.generation == a.generation &&
         warp.known[thread_ % kWarpSize][other % kWarpSize] >= a.clock;
}

bool Watch::conflicts(const Access& a, std::uint8_t bytes, bool atomic, bool shared) const {
  return (a.bytes & bytes) && !(atomic && a.thread & kAtomic) && !ordered(a, shared);
}

Access Watch::now(std::uint8_t bytes, bool atomic, const void* caller) {
  Access a;
  a.generation = block_->generation;
  a.site = site(caller);
  a.bytes = bytes;
  a.thread = static_cast<std::uint16_t>(thread_ | (atomic ? kAtomic : 0));
  a.clock = clocks().own[thread_ % kWarpSize];
  return a;
}

// Records an atomic update. After a fence, it orders the block's earlier writes before later updates of the same
// address.
void Watch::sync(const char* p) {
  auto& seen = block_->acquired;
  if (releases_.count(p) && std::find(seen.begin(), seen.end(), p) == seen.end()) seen.push_back(p);
  if (block_->fenced) releases_[p][block_->number] = block_->generation;
}

bool Watch::published(std::uint64_t block, std::uint32_t generation) const {
  for (const char* flag : block_->acquired) {
    const auto& all = releases_.at(flag);
    const auto found = all.find(block);
    if (found != all.end() && generation <= found->second) return true;
  }
  return false;
}

void touch(const void* p, std::size_t bytes, bool write, Manner manner, const void* caller) {
  watch().touch(static_cast<const char*>(p), bytes, write, manner, caller);
}
void fence() { watch().fence(); }
void trapped(const char* what, const void* caller) { watch().trapped(what, caller); }
void misaligned(const void* p, std::size_t alignment, const char* what, const void* caller) {
  watch().misaligned(static_cast<const char*>(p), alignment, what, caller);
}

}  // namespace emulator::sanitize
