// Follows a kernel through its launch and judges every access: is it inside a buffer, was that written, and is
// it ordered after what others did there. Who tells it is in the scheduler and in sanitize_access.cpp.
#include "emulator/sanitize.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <setjmp.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>
#include <tuple>
#include <unordered_map>

#include "emulator/host.h"
#include "sanitize_state.h"

namespace emulator::sanitize {

bool on = false;
constinit thread_local bool inside __attribute__((tls_model("initial-exec"))) = false;

namespace {

constexpr std::size_t kStackReach = 224 * 1024;  // less than any stack a thread of a kernel gets
constexpr std::size_t kStaticReach = 64 * 1024;
constexpr std::size_t kMostFindings = 64;
constexpr unsigned kThreadBits = 1023, kMostThreads = 1024;

struct Range {
  const char* low = nullptr;
  std::size_t bytes = 0;
  bool holds(const char* p) const { return static_cast<std::size_t>(p - low) < bytes; }
};

struct Thread {
  jmp_buf end;
  Range stack;
  const void* waits_at = nullptr;
  bool returned = false;
};

// What each lane of a warp knows of the others: up to which of their warp operations it has seen.
struct Clocks {
  std::uint32_t generation = 0;
  std::uint16_t own[kWarpSize], known[kWarpSize][kWarpSize];
};

struct Epoch {
  int launch;
  std::uint64_t block;
};

// A conflicting write whose value is not known before it has happened: the same value twice is no finding.
struct Pending {
  bool waits = false;
  const char* address;
  std::size_t bytes;
  char before[16];
  Finding finding;
};

Range host_stack() {
  pthread_attr_t attributes;
  void* low = nullptr;
  std::size_t bytes = 0;
  if (pthread_getattr_np(pthread_self(), &attributes)) return {};
  pthread_attr_getstack(&attributes, &low, &bytes);
  pthread_attr_destroy(&attributes);
  return {static_cast<char*>(low), bytes};
}

Range library_of(const void* code) {
  struct Wanted {
    std::uintptr_t code;
    Range found;
  } wanted{reinterpret_cast<std::uintptr_t>(code), {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* argument) {
        auto* wanted = static_cast<Wanted*>(argument);
        std::uintptr_t high = info->dlpi_addr;
        bool inside = false;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& segment = info->dlpi_phdr[i];
          if (segment.p_type != PT_LOAD) continue;
          const auto low = info->dlpi_addr + segment.p_vaddr;
          high = std::max<std::uintptr_t>(high, low + segment.p_memsz);
          inside |= wanted->code >= low && wanted->code < low + segment.p_memsz;
        }
        if (inside) wanted->found = {reinterpret_cast<char*>(info->dlpi_addr), high - info->dlpi_addr};
        return static_cast<int>(inside);
      },
      &wanted);
  return wanted.found;
}

class Watch {
 public:
  std::uint64_t order = 0;  // 0: forward, 1: reverse, else a seed
  bool checks = true;
  std::map<std::string, std::vector<Array>> arrays;
  std::vector<Finding> findings;
  std::vector<Record> launches;

  void begin_call();
  void begin_launch(const Launch& launch, char* static_shared, std::size_t static_bytes);
  void begin_block(std::uint64_t number, unsigned threads);
  void run_thread(void (*body)(void*), void* arguments);
  void switch_to(unsigned thread);
  void arrive(unsigned thread, const void* caller, bool at_barrier);
  void release_barrier(unsigned alive);
  void release_warp(unsigned first, std::uint32_t lanes);
  void refused(const Launch& launch, const char* error);
  void end_call();
  void touch(const char* p, std::size_t bytes, bool write, Manner manner, const void* caller);
  void fence() { fenced_ = true; }
  void settle();
  void report(Kind kind, const void* caller, const std::string& detail = "");
  void blame(const char* p);
  void unwritten(const char* p, std::size_t elements, std::size_t bytes);

  std::vector<std::uint32_t> blocks_order, threads_order;
  std::vector<std::pair<unsigned, Range>> quiet;
  Region *static_shared = nullptr, *dynamic_shared = nullptr;
  bool given_up = false;
  std::vector<Thread> threads{kMostThreads};
  unsigned thread = 0;

 private:
  std::vector<std::uint32_t> permutation(std::size_t count, std::uint64_t salt) const;
  int record(const Launch& launch);
  const Epoch& epoch(const Access& a) const { return epochs_[a.generation - first_generation_]; }
  bool current(const Access& a) const { return a.generation >= launch_first_; }
  bool ordered(const Access& a, bool shared) const;
  bool acquired(std::uint64_t block, std::uint32_t generation) const;
  bool conflicts(const Access& a, std::uint8_t bytes, bool atomic, bool shared) const;
  bool same_warp(const Access& a) const;
  Clocks& clocks();
  Access now(std::uint8_t bytes, bool atomic, const void* caller);
  void next_generation();
  bool known_elsewhere(const char* p) const;
  void miss(const char* p, std::size_t bytes, bool write, const void* caller);
  const Array* array_at(std::size_t offset, bool nearest) const;
  void grain(Region& region, std::size_t index, std::uint8_t bytes, bool write, Manner manner, const void* caller);
  std::size_t missing_bytes(const Region& region, const char* p, std::size_t bytes) const;
  bool unfilled(const Region& region, const char* p, std::size_t bytes) const;
  void sync(const char* p);
  Finding finding(Kind kind, const void* caller) const;
  void locate(Finding& finding, const Region* region, const char* p, std::size_t bytes) const;
  void race(const char* p, std::size_t bytes, bool write, bool atomic, const Access& other, bool other_writes,
            const Region& region, const void* caller);
  void keep(const Finding& finding);
  Where where(const Access& a, bool writes) const;

  std::vector<Epoch> epochs_;
  std::uint32_t first_generation_ = 1, generation_ = 0, launch_first_ = 1, block_first_ = 1;
  std::uint64_t block_ = 0;
  unsigned count_ = 0;
  int launch_ = -1, refused_ = -1;
  std::string refusal_;
  Range library_, host_stack_, built_in_;
  const std::vector<Array>* named_ = nullptr;
  std::vector<Clocks> clocks_{kMostThreads / kWarpSize};
  const void *first_site_ = nullptr, *other_site_ = nullptr;
  unsigned other_thread_ = 0, arrived_ = 0;
  bool fenced_ = false;
  std::unordered_map<const char*, std::unordered_map<std::uint64_t, std::uint32_t>> releases_;
  std::vector<const char*> acquired_;
  Pending pending_;
  std::map<std::tuple<Kind, std::uint32_t, std::uint32_t, const Region*, std::string>, std::size_t> seen_;
};

Watch& watch() {
  static auto* only = new Watch;
  return *only;
}

// ------------------------------------------------------------------------------- the life of a launch

void Watch::begin_call() {
  findings.clear();
  seen_.clear();
  launches.clear();
  epochs_.clear();
  releases_.clear();
  pending_.waits = given_up = false;
  first_generation_ = launch_first_ = block_first_ = generation_ + 1;
  launch_ = refused_ = -1;
  memory().forget_dead();
}

std::vector<std::uint32_t> Watch::permutation(std::size_t count, std::uint64_t salt) const {
  std::vector<std::uint32_t> all(count);
  std::iota(all.begin(), all.end(), 0);
  if (order == 1) std::reverse(all.begin(), all.end());
  if (order < 2) return all;
  std::mt19937_64 draw(order * 0x9E3779B97F4A7C15u + salt);
  for (std::size_t i = count; i > 1; --i) std::swap(all[i - 1], all[draw() % i]);
  return all;
}

int Watch::record(const Launch& launch) {
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(launch.body), &info);
  launches.push_back({launch.kernel, launch.file, info.dli_fname ? info.dli_fname : "", launch.line, launch.grid, launch.block,
                      reinterpret_cast<std::uintptr_t>(info.dli_fbase)});
  return static_cast<int>(launches.size()) - 1;
}

void Watch::begin_launch(const Launch& launch, char* shared, std::size_t shared_bytes) {
  launch_ = record(launch);
  launch_first_ = generation_ + 1;
  releases_.clear();
  given_up = false;
  const std::size_t blocks = static_cast<std::size_t>(launch.grid.x) * launch.grid.y * launch.grid.z;
  blocks_order = permutation(blocks, 2 * launches.size());
  threads_order = permutation(static_cast<std::size_t>(launch.block.x) * launch.block.y * launch.block.z, 2 * launches.size() + 1);
  library_ = library_of(reinterpret_cast<const void*>(launch.body));
  host_stack_ = host_stack();
  const char* ends[] = {reinterpret_cast<char*>(&threadIdx), reinterpret_cast<char*>(&blockIdx), reinterpret_cast<char*>(&blockDim),
                        reinterpret_cast<char*>(&gridDim), reinterpret_cast<char*>(&emulator::dynamic_shared)};
  const auto [low, high] = std::minmax_element(std::begin(ends), std::end(ends));
  built_in_ = {*low, static_cast<std::size_t>(*high - *low) + sizeof(dim3)};
  const auto names = arrays.find(launches.back().library);
  named_ = names == arrays.end() || names->second.empty() ? nullptr : &names->second;
  if (static_shared && (static_shared->base != shared || static_shared->bytes != shared_bytes)) {
    memory().drop(static_shared->base);
    static_shared = nullptr;
  }
  if (!static_shared && shared_bytes) static_shared = memory().add({.base = shared, .bytes = shared_bytes, .place = Place::kStatic});
}

void Watch::next_generation() {
  ++generation_;
  epochs_.push_back({launch_, block_});
}

void Watch::begin_block(std::uint64_t number, unsigned count) {
  block_ = number;
  count_ = count;
  block_first_ = generation_ + 1;
  fenced_ = false;
  acquired_.clear();
  quiet.clear();
  first_site_ = other_site_ = nullptr;
  arrived_ = 0;
  for (unsigned i = 0; i < count; ++i) threads[i].returned = false;
  next_generation();
}

void Watch::run_thread(void (*body)(void*), void* arguments) {
  if (given_up) return;
  const unsigned self = thread;
  char here;
  threads[self].stack = {&here - kStackReach, kStackReach + 256};
  switch_to(self);
  if (!setjmp(threads[self].end)) body(arguments);
  settle();
  threads[self].returned = true;
}

void Watch::switch_to(unsigned next) {
  settle();
  thread = next;
  inside = true;
}

void Watch::arrive(unsigned index, const void* caller, bool at_barrier) {
  settle();
  threads[index].waits_at = caller;
  if (!at_barrier) return;
  if (!arrived_++) first_site_ = caller;
  if (caller != first_site_ && !other_site_) other_site_ = caller, other_thread_ = index;
}

void Watch::release_barrier(unsigned alive) {
  if (other_site_) {
    Finding found = finding(Kind::kDivergentBarrier, other_site_);
    found.here.thread = other_thread_;
    for (unsigned i = 0; i < count_; ++i)
      if (!threads[i].returned && threads[i].waits_at == first_site_) found.there = {block_, i, found.there.site, false, true};
    found.there.site = static_cast<std::uint32_t>(static_cast<const char*>(first_site_) - library_.low);
    keep(found);
  } else if (alive < count_) {
    Finding found = finding(Kind::kSkippedBarrier, first_site_);
    for (unsigned i = 0; i < count_; ++i)
      if (!threads[i].returned) found.here.thread = i;
    for (unsigned i = 0; i < count_; ++i)
      if (threads[i].returned) found.there = {block_, i, 0, false, true};
    keep(found);
  }
  first_site_ = other_site_ = nullptr;
  arrived_ = 0;
  next_generation();
}

Clocks& Watch::clocks() {
  Clocks& warp = clocks_[thread / kWarpSize];
  if (warp.generation != generation_) {
    warp.generation = generation_;
    std::memset(warp.known, 0, sizeof warp.known);
    std::fill(std::begin(warp.own), std::end(warp.own), 1);
  }
  return warp;
}

void Watch::release_warp(unsigned first, std::uint32_t lanes) {
  settle();
  thread = first;
  Clocks& warp = clocks();
  std::uint16_t joined[kWarpSize] = {};
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    if (!(lanes >> lane & 1)) continue;
    warp.known[lane][lane] = warp.own[lane];
    if (warp.own[lane] < UINT16_MAX) ++warp.own[lane];
    for (unsigned i = 0; i < kWarpSize; ++i) joined[i] = std::max(joined[i], warp.known[lane][i]);
  }
  for (unsigned lane = 0; lane < kWarpSize; ++lane)
    if (lanes >> lane & 1) std::memcpy(warp.known[lane], joined, sizeof joined);
}

void Watch::refused(const Launch& launch, const char* error) {
  refused_ = record(launch);
  refusal_ = error;
}

void Watch::end_call() {
  settle();
  if (refused_ < 0 || !peek_error()) return;
  Finding found{.kind = Kind::kLaunchFailed, .launch = refused_, .detail = refusal_};
  keep(found);
}

// --------------------------------------------------------------------------------------- what is ordered

bool Watch::same_warp(const Access& a) const {
  return epoch(a).block == block_ && (a.thread & kThreadBits) / kWarpSize == thread / kWarpSize;
}

bool Watch::acquired(std::uint64_t block, std::uint32_t generation) const {
  for (const char* flag : acquired_) {
    const auto& all = releases_.at(flag);
    const auto found = all.find(block);
    if (found != all.end() && generation <= found->second) return true;
  }
  return false;
}

// Whether something happened before what the running thread does now, whatever the order of threads and blocks.
bool Watch::ordered(const Access& a, bool shared) const {
  if (a.generation < (shared ? block_first_ : launch_first_)) return true;
  const Epoch& then = epoch(a);
  if (then.block != block_) return acquired(then.block, a.generation);
  const unsigned other = a.thread & kThreadBits;
  if (a.generation != generation_ || other == thread) return true;
  const Clocks& warp = clocks_[thread / kWarpSize];
  return same_warp(a) && warp.generation == generation_ && warp.known[thread % kWarpSize][other % kWarpSize] >= a.clock;
}

bool Watch::conflicts(const Access& a, std::uint8_t bytes, bool atomic, bool shared) const {
  return (a.bytes & bytes) && !(atomic && a.thread & kAtomic) && !ordered(a, shared);
}

Access Watch::now(std::uint8_t bytes, bool atomic, const void* caller) {
  Access a;
  a.generation = generation_;
  a.site = static_cast<std::uint32_t>(static_cast<const char*>(caller) - library_.low);
  a.bytes = bytes;
  a.thread = static_cast<std::uint16_t>(thread | (atomic ? kAtomic : 0));
  a.clock = clocks().own[thread % kWarpSize];
  return a;
}

// An atomic update after a fence publishes what the block did; whoever updates the same address later sees it.
void Watch::sync(const char* p) {
  const auto known = releases_.find(p);
  if (known != releases_.end() && std::find(acquired_.begin(), acquired_.end(), p) == acquired_.end()) acquired_.push_back(p);
  if (fenced_) releases_[p][block_] = generation_;
}

// ------------------------------------------------------------------------------------------- one access

void Watch::touch(const char* p, std::size_t bytes, bool write, Manner manner, const void* caller) {
  if (threads[thread].stack.holds(p) || built_in_.holds(p) || !checks) return;
  settle();
  Region* region = memory().at(p);
  if (!region || (region->place == Place::kDynamic && region != dynamic_shared)) {
    if (!known_elsewhere(p)) miss(p, bytes, write, caller);
    return;
  }
  const std::size_t offset = static_cast<std::size_t>(p - region->base);
  const Array* array = region == static_shared && named_ ? array_at(offset, false) : nullptr;
  const bool past = offset + bytes > region->bytes || (region == static_shared && named_ && (!array || offset + bytes > array->offset + array->bytes));
  if (past || !region->live) {
    Finding found = finding(!region->live ? Kind::kUseAfterFree : write ? Kind::kOutOfBoundsWrite : Kind::kOutOfBoundsRead, caller);
    locate(found, region, p, bytes);
    return keep(found);
  }
  if (write && region->read_only) {
    Finding found = finding(Kind::kInputWritten, caller);
    locate(found, region, p, bytes);
    keep(found);
  }
  memory().ready(*region);
  if (region->place == Place::kDevice && manner != Manner::kPlain) sync(p);
  if (!write && unfilled(*region, p, bytes)) {
    Finding found = finding(Kind::kUninitialized, caller);
    locate(found, region, p, bytes);
    keep(found);
  }
  if (write && region->place == Place::kDevice) region->written_by = launch_;
  for (std::size_t at = offset; at < offset + bytes;) {
    const std::size_t first = at % kGrain, n = std::min(kGrain - first, offset + bytes - at);
    grain(*region, at / kGrain, static_cast<std::uint8_t>(((1u << n) - 1) << first), write, manner, caller);
    at += n;
  }
}

void Watch::grain(Region& region, std::size_t index, std::uint8_t bytes, bool write, Manner manner, const void* caller) {
  Grain& g = region.grains[index];
  const char* p = region.base + index * kGrain;
  // Nobody is told when a volatile value in shared memory is there: without a barrier it is a race all the same.
  const bool atomic = manner == Manner::kAtomic || (manner == Manner::kVolatile && region.place == Place::kDevice);
  const bool shared = region.place != Place::kDevice;
  if (conflicts(g.write, bytes, atomic, shared)) race(p, kGrain, write, atomic, g.write, true, region, caller);
  else if (write && conflicts(g.read, bytes, atomic, shared)) race(p, kGrain, write, atomic, g.read, false, region, caller);
  else if (write && conflicts(g.elsewhere, bytes, atomic, shared)) race(p, kGrain, write, atomic, g.elsewhere, false, region, caller);
  Access fresh = now(bytes, atomic, caller);
  Access& last = write ? g.write : g.read;
  if (last.generation == fresh.generation && last.thread == fresh.thread && last.clock == fresh.clock) fresh.bytes |= last.bytes;
  else if (!write && last.thread != fresh.thread && !ordered(last, shared)) g.elsewhere = last;
  last = fresh;
  if (!write) return;
  const std::uint32_t since = region.place == Place::kDevice ? 1 : block_first_;
  if (g.filled_since < since) g.filled_since = since, g.filled = 0;
  g.filled |= bytes;
}

// A byte counts as never written where nobody was seen to write it and it still is what memory starts as.
std::size_t Watch::missing_bytes(const Region& region, const char* p, std::size_t bytes) const {
  const std::uint32_t since = region.place == Place::kDevice ? 1 : block_first_;
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
  return missing >= (bytes > 16 ? bytes : std::min(bytes, kGrain));  // a structure may have padding
}

// Memory a kernel may read without it being the program's: the emulator's, and constants of the library.
bool Watch::known_elsewhere(const char* p) const {
  if (host_stack_.holds(p) || library_.holds(p)) return true;
  for (const auto& [warp, range] : quiet)
    if (range.holds(p)) return true;
  for (unsigned i = 0; i < count_; ++i)
    if (threads[i].stack.holds(p)) return true;
  Dl_info info;
  return dladdr(p, &info) != 0;
}

void Watch::miss(const char* p, std::size_t bytes, bool write, const void* caller) {
  Finding found = finding(write ? Kind::kOutOfBoundsWrite : Kind::kOutOfBoundsRead, caller);
  const Region* near = memory().nearest(p);
  const std::size_t away = !near ? SIZE_MAX : p < near->base ? static_cast<std::size_t>(near->base - p) : static_cast<std::size_t>(p - near->base) - near->bytes;
  if (reinterpret_cast<std::uintptr_t>(p) < 4096) {
    found.detail = "a null pointer";
  } else if (near && away < (near->place == Place::kStatic ? kStaticReach : std::size_t{1} << 36)) {
    locate(found, near, p, bytes);
  }
  found.size = bytes;
  keep(found);
  if (near && near->zoned && away + bytes < kZone) return;
  given_up = true;
  longjmp(threads[thread].end, 1);
}

const Array* Watch::array_at(std::size_t offset, bool nearest) const {
  const Array* best = nullptr;
  for (const Array& array : *named_) {
    if (offset >= array.offset && offset < array.offset + array.bytes) return &array;
    if (nearest && array.offset <= offset) best = &array;
  }
  return nearest && !best ? &named_->front() : best;
}

// ------------------------------------------------------------------------------------------- findings

Finding Watch::finding(Kind kind, const void* caller) const {
  Finding found{.kind = kind, .launch = launch_};
  found.here = {block_, thread, static_cast<std::uint32_t>(static_cast<const char*>(caller) - library_.low), false, true};
  return found;
}

void Watch::locate(Finding& found, const Region* region, const char* p, std::size_t bytes) const {
  found.region = region;
  found.size = bytes;
  found.offset = p - region->base;
  found.buffer_bytes = region->bytes;
  if (region != static_shared || !named_) return;
  const Array* array = array_at(static_cast<std::size_t>(std::max<std::int64_t>(0, found.offset)), true);
  found.array = array->name;
  found.offset -= static_cast<std::int64_t>(array->offset);
  found.buffer_bytes = array->bytes;
}

Where Watch::where(const Access& a, bool writes) const {
  return {epoch(a).block, a.thread & kThreadBits, a.site, writes, true};
}

void Watch::race(const char* p, std::size_t bytes, bool write, bool atomic, const Access& other, bool other_writes,
                 const Region& region, const void* caller) {
  Finding found = finding(Kind::kRace, caller);
  locate(found, &region, p, bytes);
  found.here.write = write;
  found.there = where(other, other_writes);
  if (write && !other_writes) std::swap(found.here, found.there);  // a finding is told from the side of who reads
  if (!write || atomic || other.thread & kAtomic) return keep(found);
  if (pending_.waits) return;  // of the same access
  pending_ = {true, p, bytes, {}, found};
  std::memcpy(pending_.before, p, bytes);
}

void Watch::settle() {
  if (!pending_.waits) return;
  pending_.waits = false;
  if (std::memcmp(pending_.before, pending_.address, pending_.bytes)) keep(pending_.finding);
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

void Watch::report(Kind kind, const void* caller, const std::string& detail) {
  Finding found = finding(kind, caller);
  found.detail = detail;
  keep(found);
}

// Who wrote an address last, as a finding of its own.
void Watch::blame(const char* p) {
  const Region* region = memory().at(p);
  if (!region || !region->grains) return;
  const Access& last = region->grains[static_cast<std::size_t>(p - region->base) / kGrain].write;
  if (last.generation < first_generation_) return;
  Finding found{.kind = Kind::kOrderDependent, .launch = epoch(last).launch};
  found.here = where(last, true);
  locate(found, region, p, kGrain);
  keep(found);
}

// Elements of an output that nobody was seen to write and that still are what memory starts as.
void Watch::unwritten(const char* p, std::size_t elements, std::size_t bytes) {
  const Region* region = memory().at(p);
  if (!region || region->filled || launches.empty()) return;
  memory().ready(*const_cast<Region*>(region));
  std::size_t count = 0, first = 0;
  for (std::size_t e = 0; e < elements && region->holds(p + (e + 1) * bytes - 1); ++e) {
    if (missing_bytes(*region, p + e * bytes, bytes) == bytes && !count++) first = e;
  }
  if (!count) return;
  const int writer = region->written_by < 0 ? static_cast<int>(launches.size()) - 1 : region->written_by;
  Finding found{.kind = Kind::kUnwritten, .launch = writer};
  locate(found, region, p + first * bytes, bytes);
  found.detail = std::to_string(count) + " of " + std::to_string(elements) + " elements";
  keep(found);
}

}  // namespace

// ------------------------------------------------------------------------- what the emulator calls

std::uint64_t nth_block(std::uint64_t place) { return watch().blocks_order[place]; }
unsigned nth_thread(unsigned place) { return watch().threads_order[place]; }

void begin_launch(const Launch& launch, char* static_shared, std::size_t static_bytes) {
  watch().begin_launch(launch, static_shared, static_bytes);
}

char* dynamic_memory(std::size_t bytes) {
  Region*& region = watch().dynamic_shared;
  if (region && region->bytes == bytes) return const_cast<char*>(region->base);
  if (region) {
    auto* base = const_cast<char*>(region->base);
    const std::size_t had = region->bytes;
    memory().drop(base);
    free_zoned(base, had);
  }
  region = nullptr;
  if (!bytes) return nullptr;
  auto* base = static_cast<char*>(take_zoned(bytes));
  region = memory().add({.base = base, .bytes = bytes, .place = Place::kDynamic, .zoned = true});
  return base;
}

void end_launch() {
  watch().settle();
  inside = false;
}

void begin_block(std::uint64_t number, unsigned threads) { watch().begin_block(number, threads); }
void run_thread(void (*body)(void*), void* arguments) { watch().run_thread(body, arguments); }
void switch_to(unsigned thread) { watch().switch_to(thread); }
void arrive(unsigned thread, const void* caller, bool at_barrier) { watch().arrive(thread, caller, at_barrier); }
void release_barrier(unsigned alive) { watch().release_barrier(alive); }
void release_warp(unsigned first, std::uint32_t lanes) { watch().release_warp(first, lanes); }

void keep_quiet(const void* start, std::size_t bytes) {
  const unsigned warp = watch().thread / kWarpSize;
  for (auto& [owner, range] : watch().quiet)
    if (owner == warp) {
      range = {static_cast<const char*>(start), bytes};
      return;
    }
  watch().quiet.push_back({warp, {static_cast<const char*>(start), bytes}});
}

void never_reached(unsigned thread, bool barrier) {
  watch().thread = thread;
  watch().report(barrier ? Kind::kDivergentBarrier : Kind::kDivergentWarp, watch().threads[thread].waits_at,
                 barrier ? "some threads of the block never reach it" : "lanes of its mask never come");
}

void outside_mask(unsigned thread) {
  watch().report(Kind::kDivergentWarp, watch().threads[thread].waits_at, "its mask leaves this lane out");
}

bool given_up() { return watch().given_up; }
void refused(const Launch& launch, const char* error) { watch().refused(launch, error); }
void touch(const void* p, std::size_t bytes, bool write, Manner manner, const void* caller) {
  watch().touch(static_cast<const char*>(p), bytes, write, manner, caller);
}
void fence() { watch().fence(); }

void begin_call(std::uint64_t order, bool checks) {
  watch().begin_call();
  watch().order = order;
  watch().checks = checks;
}
void end_call() { watch().end_call(); }
void name_array(const char* library, const Array& array) { watch().arrays[library].push_back(array); }
void blame(const char* p) { watch().blame(p); }
void unwritten(const char* p, std::size_t elements, std::size_t bytes) { watch().unwritten(p, elements, bytes); }
const std::vector<Finding>& findings() { return watch().findings; }
const Record& launch_of(const Finding& finding) {
  static const Record none{"", "", "", 0, {}, {}, 0};
  return finding.launch < 0 ? none : watch().launches[static_cast<std::size_t>(finding.launch)];
}

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
