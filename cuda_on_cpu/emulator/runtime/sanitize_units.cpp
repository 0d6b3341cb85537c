// Checks what the GPU's asynchronous units read and write: bulk copies, and products of warpgroups (wgmma).
#include <algorithm>

#include "sanitize_watch.h"

namespace emulator::sanitize {
namespace {

constexpr std::uint32_t kPlaces = 1u << 27;  // sites from here on stand for places of the source, and are no addresses
constexpr std::uint64_t kPiece = 16;         // bytes that have one record

void join(std::vector<std::uint64_t>& into, const std::vector<std::uint64_t>& from) {
  into.resize(std::max(into.size(), from.size()));
  for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

// Calls each(number) for the pieces in which there are bytes of a range.
template <class Each>
void for_pieces(const void* p, std::size_t bytes, Each each) {
  const auto first = reinterpret_cast<std::uintptr_t>(p);
  for (std::uint64_t piece = first / kPiece; piece <= (first + bytes - 1) / kPiece; ++piece) each(piece);
}

}  // namespace

const void* Watch::caller_of(SourcePlace place) {
  const auto same = [&](const SourcePlace& each) { return each.line == place.line && each.file == place.file; };
  const auto found = std::find_if(places_.begin(), places_.end(), same);
  const auto index = static_cast<std::size_t>(found - places_.begin());
  if (found == places_.end()) places_.push_back(place);
  return library_.low + kPlaces + index;
}

const SourcePlace* Watch::place_of(std::uint32_t site) const { return site < kPlaces || site - kPlaces >= places_.size() ? nullptr : &places_[site - kPlaces]; }

// ---------------------------------------------------------------------------- writes that a unit may not see

// Ordinary accesses reach shared memory in another way (the generic proxy) than those of the units (the async proxy). Only
// fence.proxy.async orders one before the other.
void Watch::fence_proxy() {
  fence();
  block_->proxy_fences.resize(block_->clocks.size());
  auto& all = block_->proxy_fences[thread_ / kWarpSize];
  if (all.empty() || all.back().generation != block_->generation) all.push_back({block_->generation, {}});
  Clocks& warp = clocks();
  const unsigned mine = thread_ % kWarpSize;
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    const std::uint16_t known = lane == mine ? warp.own[mine] : warp.known[mine][lane];
    all.back().covered[lane] = std::max(all.back().covered[lane], known);
  }
  if (warp.own[mine] < UINT16_MAX) ++warp.own[mine];  // later accesses have a later time
}

// Whether such a fence is after the write, which is before the present access: by the writing thread, by one of its warp, in
// a generation between the two, or by a thread of the running warp.
bool Watch::fenced(const Access& write) const {
  const auto& warps = block_->proxy_fences;
  const auto in = [&](unsigned warp, std::uint32_t generation) -> const ProxyFence* {
    if (warp >= warps.size()) return nullptr;
    const auto after = std::lower_bound(warps[warp].begin(), warps[warp].end(), generation, [](const ProxyFence& each, std::uint32_t wanted) { return each.generation < wanted; });
    return after != warps[warp].end() && after->generation == generation ? &*after : nullptr;
  };
  const unsigned thread = write.thread & kThreadBits;
  const ProxyFence* own = in(thread / kWarpSize, write.generation);
  if (own && own->covered[thread % kWarpSize] >= write.clock) return true;
  if (write.generation == block_->generation) return false;
  if (in(thread_ / kWarpSize, block_->generation)) return true;
  return std::any_of(warps.begin(), warps.end(), [&](const auto& fences) {
    const auto after = std::upper_bound(fences.begin(), fences.end(), write.generation, [](std::uint32_t wanted, const ProxyFence& each) { return wanted < each.generation; });
    return after != fences.end() && after->generation < block_->generation;
  });
}

// ------------------------------------------------------------------------------------- reads that go on

unsigned Watch::reader(unsigned unit) {
  const auto key = std::make_pair(block_->number, unit);
  const auto found = readers_.try_emplace(key, static_cast<unsigned>(readers_.size()));
  return found.first->second;
}

void Watch::unit_reads(const char* p, std::size_t bytes, SourcePlace place, Reads reads) {
  if (!checks) return;
  Region* region = memory().at(p);
  const void* const caller = caller_of(place);
  if (!region || !shared(*region)) return touch(p, bytes, false, Manner::kUnit, caller);
  if (stray(*region, p, bytes)) keep(Kind::kOutOfBoundsRead, caller, *region, p, bytes);
  settle();
  memory().ready(*region);
  const std::size_t first = static_cast<std::size_t>(p - region->base) / kGrain, end = (std::min<std::size_t>(p - region->base + bytes, region->bytes) + kGrain - 1) / kGrain;
  for (std::size_t i = first; i < end; ++i) {
    const Access& write = region->grains[i].write;
    if (write.thread & kUnit || write.generation < block_->first || epoch(write).block != block_->number) continue;
    const char* at = region->base + i * kGrain;
    if (conflicts(write, 0xF, false, true)) {
      race(at, false, false, write, true, *region, caller);
    } else if (!fenced(write)) {
      Finding found = finding(Kind::kNoProxyFence, caller);
      locate(found, *region, at, kGrain);
      found.there = where(write, true);
      keep(found);
    }
  }
  if (!reads.number) return;
  const Reading reading{reader(reads.unit), reads.number, block_->number, thread_, site(caller)};
  for_pieces(p, bytes, [&](std::uint64_t piece) {
    auto& all = readings_[piece];
    std::erase_if(all, [&](const Reading& each) { return each.reader == reading.reader; });
    all.push_back(reading);
  });
}

void Watch::unit_writes(const char* p, std::size_t bytes, SourcePlace place, bool updates) {
  if (!checks) return;
  const void* const caller = caller_of(place);
  touch(p, bytes, true, updates ? Manner::kAtomic : Manner::kUnit, caller);
  const Region* region = memory().at(p);
  if (region && shared(*region)) for_pieces(p, bytes, [&](std::uint64_t piece) { arriving_[piece] = {block_->number, thread_, site(caller), true, true}; });
}

void Watch::arrived(const char* p, std::size_t bytes) {
  for_pieces(p, bytes, [&](std::uint64_t piece) { arriving_.erase(piece); });
}

void Watch::check_arriving(const Region& region, const char* p, std::size_t bytes, bool write, const void* caller) {
  const auto copy = arriving_.find(reinterpret_cast<std::uintptr_t>(p) / kPiece);
  if (copy == arriving_.end()) return;
  Finding found = finding(Kind::kRace, caller);
  locate(found, region, p, bytes);
  found.here.write = write;
  found.there = copy->second;
  keep(found);
}

// Called before a write to shared memory by the running thread.
void Watch::check_readings(const Region& region, const char* p, std::size_t bytes, const void* caller) {
  const auto& known = block_->threads[thread_].known;
  for_pieces(p, bytes, [&](std::uint64_t piece) {
    const auto found = readings_.find(piece);
    if (found == readings_.end()) return;
    for (const Reading& each : found->second) {
      if (each.reader < known.size() && known[each.reader] >= each.number) continue;
      Finding wrong = finding(Kind::kStillRead, caller);
      locate(wrong, region, p, bytes);
      wrong.here.write = true;
      wrong.there = {each.block, each.thread, each.site, false, true};
      keep(wrong);
    }
    readings_.erase(found);
  });
}

void Watch::reads_ended(Reads last) {
  auto& known = block_->threads[thread_].known;
  const unsigned mine = reader(last.unit);
  known.resize(std::max<std::size_t>(known.size(), mine + 1));
  known[mine] = std::max(known[mine], last.number);
  auto& registers = block_->threads[thread_].registers;
  std::erase_if(registers, [&](const Registers& each) { return each.last.unit == last.unit && each.last.number <= last.number; });
}

void Watch::gave(const void* barrier) {
  if (!readers_.empty()) join(given_[barrier], block_->threads[thread_].known);
}

void Watch::took(const void* barrier) {
  const auto found = readers_.empty() ? given_.end() : given_.find(barrier);
  if (found != given_.end()) join(block_->threads[thread_].known, found->second);
}

// The threads have met: each knows what any of them knew.
void Watch::share(const std::vector<Thread*>& threads) {
  if (readers_.empty()) return;
  std::vector<std::uint64_t> all;
  for (const Thread* each : threads) join(all, each->known);
  for (Thread* each : threads) each->known = all;
}

// ------------------------------------------------------------------------------------------ registers

void Watch::unit_fills(const std::vector<std::uint32_t*>& registers, SourcePlace place, Reads reads) {
  auto& all = block_->threads[thread_].registers;
  for (const std::uint32_t* each : registers) {
    const char* p = reinterpret_cast<const char*>(each);
    std::erase_if(all, [&](const Registers& other) { return other.range.holds(p); });  // a product before adds to the same
  }
  for (const std::uint32_t* each : registers) {
    const char* p = reinterpret_cast<const char*>(each);
    if (!all.empty() && all.back().last.number == reads.number && all.back().range.low + all.back().range.bytes == p) all.back().range.bytes += sizeof *each;
    else all.push_back({{p, sizeof *each}, reads, site(caller_of(place))});
  }
}

void Watch::check_registers(const char* p, std::size_t bytes, bool write, const void* caller) {
  for (const Registers& each : block_->threads[thread_].registers) {
    if (p + bytes <= each.range.low || p >= each.range.low + each.range.bytes) continue;
    Finding found = finding(Kind::kNoWait, caller);
    found.here.write = write;
    found.there = {block_->number, thread_, each.site, true, true};
    return keep(found);
  }
}

void fence_proxy() { watch().fence_proxy(); }
void unit_reads(const void* from, std::size_t bytes, SourcePlace place, Reads reads) { watch().unit_reads(static_cast<const char*>(from), bytes, place, reads); }
void unit_writes(const void* to, std::size_t bytes, SourcePlace place, bool updates) { watch().unit_writes(static_cast<const char*>(to), bytes, place, updates); }
void arrived(const void* to, std::size_t bytes) { watch().arrived(static_cast<const char*>(to), bytes); }
void unit_fills(const std::vector<std::uint32_t*>& registers, SourcePlace place, Reads reads) { watch().unit_fills(registers, place, reads); }
void reads_ended(Reads last) { watch().reads_ended(last); }
void gave(const void* barrier) { watch().gave(barrier); }
void took(const void* barrier) { watch().took(barrier); }
const void* caller_of(SourcePlace place) { return watch().caller_of(place); }

}  // namespace emulator::sanitize
