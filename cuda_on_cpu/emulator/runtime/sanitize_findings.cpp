// Creates and keeps the findings. Findings of one kind at the same two places in the code are kept once, with a count.
#include <cstring>

#include "sanitize_watch.h"

namespace emulator::sanitize {
namespace {

constexpr std::size_t kMostFindings = 64, kMostGuesses = 4096;

}  // namespace

Finding Watch::finding(Kind kind, const void* caller) const {
  Finding found{.kind = kind, .launch = launch_};
  found.here = {block_->number, thread_, site(caller), false, true};
  return found;
}

void Watch::keep(Kind kind, const void* caller, const Region& region, const char* p, std::size_t bytes) {
  Finding found = finding(kind, caller);
  locate(found, region, p, bytes);
  keep(found);
}

void Watch::keep(const Finding& found) {
  const auto key = std::make_tuple(found.kind, found.here.site, found.there.site, found.region, found.array);
  const auto seen = seen_.find(key);
  if (seen != seen_.end()) {
    ++findings[seen->second].count;
  } else if (findings.size() < kMostFindings) {
    seen_[key] = findings.size();
    findings.push_back(found);
  }
}

void Watch::locate(Finding& found, const Region& region, const char* p, std::size_t bytes) const {
  found.region = &region;
  found.size = bytes;
  found.offset = p - region.base;
  found.buffer_bytes = region.bytes;
  if (region.place != Place::kStatic || !named_) return;
  const Array* array = array_at(static_cast<std::size_t>(std::max<std::int64_t>(0, found.offset)), true);
  found.array = array->name;
  found.offset -= static_cast<std::int64_t>(array->offset);
  found.buffer_bytes = array->bytes;
}

// Returns the __shared__ variable at an offset. If there is none: the nearest one before it if `nearest`, else null.
const Array* Watch::array_at(std::size_t offset, bool nearest) const {
  const Array* best = nullptr;
  for (const Array& array : *named_) {
    if (offset >= array.offset && offset < array.offset + array.bytes) return &array;
    if (nearest && array.offset <= offset) best = &array;
  }
  return nearest && !best ? &named_->front() : best;
}

Where Watch::where(const Access& a, bool writes) const {
  return {epoch(a).block, a.thread & kThreadBits, a.site, writes, true};
}

void Watch::race(const char* p, bool write, bool atomic, const Access& other, bool other_writes, const Region& region, const void* caller) {
  Finding found = finding(Kind::kRace, caller);
  locate(found, region, p, kGrain);
  found.here.write = write;
  found.there = where(other, other_writes);
  if (write && !other_writes) std::swap(found.here, found.there);  // if one access is a read, it is `here`
  const bool updated = other_writes ? other.thread & kAtomic : atomic, plain = other_writes ? !write && !atomic : !(other.thread & kAtomic);
  if (updated && plain && guesses_.size() < kMostGuesses) return guesses_.push_back({p, found});
  if (!write || atomic || other.thread & kAtomic) return keep(found);
  if (pending_.waits) return;  // this access has a pending finding already
  pending_ = {true, p, kGrain, {}, found};
  std::memcpy(pending_.before, p, kGrain);
}

// Called for an atomic update by the running thread.
void Watch::drop_guesses(const char* p, std::size_t bytes) {
  std::erase_if(guesses_, [&](const Guess& guess) {
    const Where& reader = guess.finding.here;
    return guess.address >= p && guess.address < p + bytes && reader.block == block_->number && reader.thread == thread_;
  });
}

void Watch::keep_guesses() {
  for (const Guess& guess : guesses_) keep(guess.finding);
  guesses_.clear();
}

void Watch::settle() {
  if (!pending_.waits) return;
  pending_.waits = false;
  if (std::memcmp(pending_.before, pending_.address, pending_.bytes)) keep(pending_.finding);
}

// Adds a finding of an order dependence, at the last write to an address.
void Watch::blame(const char* p) {
  const Region* region = memory().at(p);
  if (!region || !region->grains) return;
  const Access& last = region->grains[static_cast<std::size_t>(p - region->base) / kGrain].write;
  if (last.generation < first_generation_) return;
  Finding found{.kind = Kind::kOrderDependent, .launch = epoch(last).launch};
  found.here = where(last, true);
  locate(found, *region, p, kGrain);
  keep(found);
}

// Adds a finding if an output has elements that no kernel wrote.
void Watch::unwritten(const char* p, std::size_t elements, std::size_t bytes) {
  Region* region = memory().at(p);
  if (!region || region->filled || launches.empty()) return;
  memory().ready(*region);
  std::size_t count = 0, first = 0;
  for (std::size_t e = 0; e < elements && region->holds(p + (e + 1) * bytes - 1); ++e)
    if (missing_bytes(*region, p + e * bytes, bytes) == bytes && !count++) first = e;
  if (!count) return;
  const int writer = region->written_by < 0 ? static_cast<int>(launches.size()) - 1 : region->written_by;
  Finding found{.kind = Kind::kUnwritten, .launch = writer};
  locate(found, *region, p + first * bytes, bytes);
  found.detail = std::to_string(count) + " of " + std::to_string(elements) + " elements";
  keep(found);
}

}  // namespace emulator::sanitize
