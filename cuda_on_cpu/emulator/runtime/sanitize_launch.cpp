// Tracks the state of a launch, which the scheduler reports: which thread runs, and with which threads it has
// synchronised.
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "emulator/host.h"
#include "sanitize_watch.h"

namespace emulator::sanitize {

bool on = false;
constinit thread_local bool inside __attribute__((tls_model("initial-exec"))) = false;

namespace {

constexpr std::size_t kStackReach = 224 * 1024;  // less than the size of every stack on which a kernel's thread runs

Range host_stack() {
  pthread_attr_t attributes;
  void* low = nullptr;
  std::size_t bytes = 0;
  if (pthread_getattr_np(pthread_self(), &attributes)) return {};
  pthread_attr_getstack(&attributes, &low, &bytes);
  pthread_attr_destroy(&attributes);
  return {static_cast<char*>(low), bytes};
}

// Returns the address range of the library that contains `code`.
Range library_of(const void* code) {
  struct Wanted {
    std::uintptr_t code;
    Range found;
  } wanted{reinterpret_cast<std::uintptr_t>(code), {}};
  auto look = [](dl_phdr_info* info, std::size_t, void* argument) {
    auto* wanted = static_cast<Wanted*>(argument);
    std::uintptr_t high = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; ++i)
      if (info->dlpi_phdr[i].p_type == PT_LOAD) high = std::max<std::uintptr_t>(high, info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz);
    if (wanted->code < info->dlpi_addr || wanted->code >= high) return 0;
    wanted->found = {reinterpret_cast<char*>(info->dlpi_addr), high - info->dlpi_addr};
    return 1;
  };
  dl_iterate_phdr(look, &wanted);
  return wanted.found;
}

// Returns the address range of threadIdx and the other built-in variables.
Range built_in() {
  const char* ends[] = {reinterpret_cast<char*>(&threadIdx), reinterpret_cast<char*>(&blockIdx), reinterpret_cast<char*>(&blockDim),
                        reinterpret_cast<char*>(&gridDim), reinterpret_cast<char*>(&dynamic_shared)};
  const auto [low, high] = std::minmax_element(std::begin(ends), std::end(ends));
  return {*low, static_cast<std::size_t>(*high - *low) + sizeof(dim3)};
}

std::size_t volume(const dim3& v) { return static_cast<std::size_t>(v.x) * v.y * v.z; }

}  // namespace

Watch& watch() {
  static auto* only = new Watch;
  return *only;
}

void Watch::begin_call() {
  findings.clear();
  seen_.clear();
  launches.clear();
  epochs_.clear();
  releases_.clear();
  pending_.waits = launch_aborted = false;
  first_generation_ = launch_first_ = generation_ + 1;
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
  launches.push_back({launch.kernel, launch.file, info.dli_fname ? info.dli_fname : "", launch.line, launch.grid, launch.block, launch.ticket});
  return static_cast<int>(launches.size()) - 1;
}

void Watch::begin_launch(const Launch& launch) {
  launch_ = record(launch);
  launch_first_ = generation_ + 1;
  clustered_ = volume(launch.cluster) > 1;
  grouped_ = launch.cooperative || clustered_;
  if (grouped_) drop_statics();
  blocks_.clear();
  block_ = nullptr;
  launch_aborted = false;
  block_order = permutation(volume(launch.grid) / volume(launch.cluster), 2 * launches.size());
  turn_order = permutation(volume(launch.cooperative ? launch.grid : launch.cluster), 2 * launches.size());
  thread_order = permutation(volume(launch.block), 2 * launches.size() + 1);
  library_ = library_of(reinterpret_cast<const void*>(launch.body));
  host_stack_ = host_stack();
  built_in_ = built_in();
  const auto names = arrays.find(launches.back().library);
  named_ = names == arrays.end() || names->second.empty() ? nullptr : &names->second;
}

// Each block of a group has static memory of its own, for this launch alone.
void Watch::static_memory(char* start, std::size_t bytes) {
  for (const Region* each : static_)
    if (each->base == start && each->bytes == bytes) return;
  if (!grouped_) drop_statics();
  if (bytes) static_.push_back(memory().add({.base = start, .bytes = bytes, .place = Place::kStatic}));
}

void Watch::drop_statics() {
  for (const Region* each : static_) memory().drop(each->base);
  static_.clear();
}

char* Watch::dynamic_memory(std::size_t bytes, const char* behind) {
  if (!bytes) return nullptr;
  auto* start = static_cast<char*>(take_zoned_behind(bytes, behind));
  dynamic_.push_back(memory().add({.base = start, .bytes = bytes, .place = Place::kDynamic, .owned = true, .zoned = true}));
  return start;
}

void Watch::end_launch() {
  settle();
  keep_guesses();
  inside = false;
  releases_.clear();
  for (Region* region : dynamic_) memory().drop(region->base);
  dynamic_.clear();
  if (grouped_) drop_statics();
}

void Watch::begin_group() {
  blocks_.clear();
  group_first_ = generation_ + 1;
  forget_readings();
}

void Watch::forget_readings() {
  readers_.clear();
  readings_.clear();
  given_.clear();
  arriving_.clear();
}

void Watch::next_generation() {
  block_->generation = ++generation_;
  epochs_.push_back({launch_, block_->number});
}

void Watch::begin_block(std::uint64_t number, unsigned count) {
  if (!grouped_ && block_) {  // reuses the records of the last block
    auto last = blocks_.extract(block_->number);
    last.key() = number;
    blocks_.insert(std::move(last));
  }
  if (!grouped_) forget_readings();
  block_ = &blocks_[number];
  Block& b = *block_;
  b.number = number;
  b.count = count;
  b.threads.resize(count);
  b.clocks.resize((count + kWarpSize - 1) / kWarpSize);
  for (Thread& thread : b.threads) thread.returned = false, thread.known.clear(), thread.registers.clear();
  b.ignored.clear();
  b.acquired.clear();
  b.proxy_fences.clear();
  b.fenced = false;
  b.first_site = b.other_site = nullptr;
  b.arrived = 0;
  next_generation();
  b.first = grouped_ ? group_first_ : b.generation;
}

// Records a grid barrier: every access of any block so far is ordered before every later access.
void Watch::release_grid() {
  settle();
  launch_first_ = generation_ + 1;
  order_all();
  std::vector<Thread*> all;
  for (auto& [number, block] : blocks_)
    for (Thread& each : block.threads) all.push_back(&each);
  share(all);
}

void Watch::order_blocks() {
  settle();
  clustered_ ? order_all() : next_generation();
}

void Watch::order_all() {
  Block* running = block_;
  for (auto& [number, block] : blocks_) {
    block_ = &block;
    next_generation();
  }
  block_ = running;
}

void Watch::run_thread(void (*body)(void*), void* arguments) {
  if (launch_aborted) return;
  Thread& self = block_->threads[thread_];
  char here;
  self.stack = {&here - kStackReach, kStackReach + 256};
  inside = true;
  if (!setjmp(self.end)) body(arguments);
  settle();
  block_->threads[thread_].returned = true;
}

void Watch::switch_to(unsigned next) {
  settle();
  thread_ = next;
  inside = true;
}

void Watch::arrive(unsigned index, const void* caller, bool at_barrier) {
  settle();
  Block& b = *block_;
  b.threads[index].waits_at = caller;
  if (!at_barrier) return;
  if (!b.arrived++) b.first_site = caller;
  if (caller != b.first_site && !b.other_site) b.other_site = caller, b.other_thread = index;
}

void Watch::release_barrier(unsigned alive) {
  Block& b = *block_;
  Finding found = finding(b.other_site ? Kind::kDivergentBarrier : Kind::kSkippedBarrier, b.other_site ? b.other_site : b.first_site);
  for (unsigned i = 0; i < b.count; ++i) {
    const Thread& thread = b.threads[i];
    if (thread.returned && !b.other_site) found.there = {b.number, i, 0, false, true};
    if (!thread.returned && !b.other_site) found.here.thread = i;
    if (!thread.returned && b.other_site && thread.waits_at == b.first_site) found.there = {b.number, i, site(b.first_site), false, true};
  }
  if (b.other_site) found.here.thread = b.other_thread;
  if (b.other_site || alive < b.count) keep(found);
  b.first_site = b.other_site = nullptr;
  b.arrived = 0;
  next_generation();
  std::vector<Thread*> all;
  for (Thread& each : b.threads)
    if (!each.returned) all.push_back(&each);
  share(all);
}

Clocks& Watch::clocks() {
  Clocks& warp = block_->clocks[thread_ / kWarpSize];
  if (warp.generation != block_->generation) {
    warp.generation = block_->generation;
    std::memset(warp.known, 0, sizeof warp.known);
    std::fill(std::begin(warp.own), std::end(warp.own), 1);
  }
  return warp;
}

// Records a warp operation: each of its lanes is now ordered after everything that any of its lanes was ordered after.
void Watch::release_warp(unsigned first, std::uint32_t lanes) {
  settle();
  thread_ = first;
  Clocks& warp = clocks();
  std::uint16_t joined[kWarpSize] = {};
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    if (!(lanes >> lane & 1)) continue;
    warp.known[lane][lane] = warp.own[lane];
    if (warp.own[lane] < UINT16_MAX) ++warp.own[lane];
    for (unsigned i = 0; i < kWarpSize; ++i) joined[i] = std::max(joined[i], warp.known[lane][i]);
  }
  std::vector<Thread*> met;
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    if (!(lanes >> lane & 1)) continue;
    std::memcpy(warp.known[lane], joined, sizeof joined);
    met.push_back(&block_->threads[first + lane]);
  }
  share(met);
}

void Watch::ignore_memory(const void* start, std::size_t bytes) {
  const unsigned warp = thread_ / kWarpSize;
  const Range range{static_cast<const char*>(start), bytes};
  for (auto& [owner, known] : block_->ignored)
    if (owner == warp) {
      known = range;
      return;
    }
  block_->ignored.push_back({warp, range});
}

void Watch::never_reached(unsigned thread, bool barrier) {
  thread_ = thread;
  Finding found = finding(barrier ? Kind::kDivergentBarrier : Kind::kDivergentWarp, block_->threads[thread].waits_at);
  found.detail = barrier ? "some threads of the block never reach this barrier" : "some lanes of the operation's mask never reach it";
  keep(found);
}

void Watch::stuck(unsigned thread, SourcePlace place, const std::string& what) {
  thread_ = thread;
  Finding found = finding(Kind::kHang, caller_of(place));
  found.detail = what;
  keep(found);
}

void Watch::failed(SourcePlace place, const std::string& what) {
  Finding found = finding(Kind::kFailed, caller_of(place));
  found.detail = what;
  keep(found);
}

void Watch::outside_mask(unsigned thread) {
  Finding found = finding(Kind::kDivergentWarp, block_->threads[thread].waits_at);
  found.detail = "the operation's mask does not include this thread's lane";
  keep(found);
}

void Watch::absent_lane(unsigned lane) {
  Finding found = finding(Kind::kAbsentLane, block_->threads[thread_].waits_at);
  found.detail = "lane " + std::to_string(lane) + ", which does not take part in the shuffle";
  keep(found);
}

void Watch::refused(const Launch& launch, const char* error) {
  refused_ = record(launch);
  refusal_ = error;
}

void Watch::accessed_too_early(std::size_t bytes, bool write, const void* caller) {
  Dl_info info{};
  if (!dladdr(caller, &info)) return;
  launches.push_back({"", "", info.dli_fname, 0, dim3(1), dim3(1)});
  Finding found{.kind = Kind::kTooEarly, .launch = static_cast<int>(launches.size()) - 1};
  found.here = {0, 0, static_cast<std::uint32_t>(static_cast<const char*>(caller) - static_cast<const char*>(info.dli_fbase)), write, true};
  found.size = bytes;
  keep(found);
}

void Watch::end_call() {
  settle();
  if (refused_ >= 0 && peek_error()) keep({.kind = Kind::kLaunchFailed, .launch = refused_, .detail = refusal_});
}

// --------------------------------------------------------------------------------- called by the scheduler

std::uint64_t nth_block(std::uint64_t place) { return watch().block_order[place]; }
std::uint64_t nth_turn(std::uint64_t place) { return watch().turn_order[place]; }
unsigned nth_thread(unsigned place) { return watch().thread_order[place]; }
void begin_launch(const Launch& launch) { watch().begin_launch(launch); }
void static_memory(char* start, std::size_t bytes) { watch().static_memory(start, bytes); }
char* dynamic_memory(std::size_t bytes, const char* behind) { return watch().dynamic_memory(bytes, behind); }
void end_launch() { watch().end_launch(); }
void begin_group() { watch().begin_group(); }
void begin_block(std::uint64_t number, unsigned threads) { watch().begin_block(number, threads); }
void resume_block(std::uint64_t number) { watch().resume_block(number); }
void release_grid() { watch().release_grid(); }
void order_blocks() { watch().order_blocks(); }
void run_thread(void (*body)(void*), void* arguments) { watch().run_thread(body, arguments); }
void switch_to(unsigned thread) { watch().switch_to(thread); }
void arrive(unsigned thread, const void* caller, bool at_barrier) { watch().arrive(thread, caller, at_barrier); }
void release_barrier(unsigned alive) { watch().release_barrier(alive); }
void release_warp(unsigned first, std::uint32_t lanes) { watch().release_warp(first, lanes); }
void ignore_memory(const void* start, std::size_t bytes) { watch().ignore_memory(start, bytes); }
void never_reached(unsigned thread, bool barrier) { watch().never_reached(thread, barrier); }
void outside_mask(unsigned thread) { watch().outside_mask(thread); }
void absent_lane(unsigned lane) { watch().absent_lane(lane); }
void failed(SourcePlace place, const std::string& what) { watch().failed(place, what); }
void stuck(unsigned thread, SourcePlace place, const std::string& what) { watch().stuck(thread, place, what); }
bool launch_aborted() { return watch().launch_aborted; }
void accessed_too_early(const void*, std::size_t bytes, bool write, const void* caller) { watch().accessed_too_early(bytes, write, caller); }
void refused(const Launch& launch, const char* error) { watch().refused(launch, error); }

}  // namespace emulator::sanitize
