// Records the threads of a block, and runs its warps again with their threads together.
#include "profile_warps.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace emulator::profile {
namespace {

constexpr std::uint32_t kMost = 1024;     // events of a thread at one place between two barriers
constexpr std::uint32_t kStep = 0;        // the bytes of an event that begins a basic block
constexpr std::uint32_t kNothing = ~0u;   // the bytes of an access that turned out to be a part of another
constexpr std::uint64_t kMeeting = std::numeric_limits<std::uint64_t>::max();  // the order of a meeting: behind all else
constexpr unsigned kSiteBits = 40, kOrderBits = 57;
constexpr std::size_t kUnrolled = 4;  // the steps of a loop that nvcc does at a time
constexpr unsigned kUnknown = ~0u, kNone = ~0u - 1;  // no instructions

bool only_reads(Access access) { return access == Access::kLoad || access == Access::kVolatileLoad || access == Access::kAtomicLoad; }

Kind kind_of(Access access) {
  if (only_reads(access)) return Kind::kLoad;
  if (access == Access::kCopy) return Kind::kCopy;
  return access == Access::kStore ? Kind::kStore : Kind::kAtomic;
}

}  // namespace

// Instructions of a called function come before those of its caller, because a GPU returns from the call before it goes
// on.
std::uint64_t BlockRecord::order_of(const Lane& lane, const void* site) {
  constexpr int deepest = 1 << 16;
  const auto height = static_cast<std::uint64_t>(std::clamp(deepest - lane.depth, 0, deepest));
  return height << kSiteBits | (reinterpret_cast<std::uintptr_t>(site) & ((std::uint64_t{1} << kSiteBits) - 1));
}

unsigned BlockRecord::instruction_of(const Instruction& instruction) {
  unsigned& guess = recent_instructions_[(reinterpret_cast<std::uintptr_t>(instruction.site) + 64 * static_cast<unsigned>(instruction.kind)) % recent_instructions_.size()];
  if (guess < instructions_.size() && instructions_[guess] == instruction) return guess;
  const auto [found, fresh] = instruction_of_.try_emplace(instruction, static_cast<unsigned>(instructions_.size()));
  if (fresh) {
    instructions_.push_back(instruction);
    alone_.push_back(false);
    copy_of_.push_back(kUnknown);
    invariance_.push_back(Invariance::kUnknown);
    for (Warp& warp : warps_) {
      warp.accessed.emplace_back();
      warp.last.emplace_back();
    }
  }
  return guess = found->second;
}

unsigned BlockRecord::step_of(const void* site) {
  unsigned& guess = recent_steps_[reinterpret_cast<std::uintptr_t>(site) % recent_steps_.size()];
  if (guess < sites_.size() && sites_[guess] == site) return guess;
  const auto [found, fresh] = step_of_.try_emplace(site, static_cast<unsigned>(sites_.size()));
  if (fresh) {
    sites_.push_back(site);
    executed_.emplace_back();
    for (Warp& warp : warps_) warp.stepped.emplace_back();
  }
  return guess = found->second;
}

// Returns whether a load reads what the one before it at this place has read, and the thread has not written in between, or
// once, to this address. nvcc keeps the value in a register.
bool BlockRecord::repeats(const Lane& lane, const Last& before, std::uintptr_t address) {
  const bool forwarded = before.writes + 1 == lane.writes && lane.written == address;
  return before.address == address && (before.writes == lane.writes || forwarded);
}

// Notes a plain load, and which other instruction of the basic block has always read the same before, without a write of the
// thread in between. Compilers make one load of both.
void BlockRecord::note(Lane& lane, const Read& load) {
  unsigned& source = copy_of_[load.index];
  const auto same = std::find_if(lane.read.begin(), lane.read.end(), [&](const Read& each) {
    return each.address == load.address && each.bytes == load.bytes && (source == kUnknown || source == each.index);
  });
  source = same == lane.read.end() ? kNone : same->index;
  lane.read.push_back(load);
}

// The emulator makes an atomic operation such as atomicAdd of an atomic load and a compare-and-swap that it may repeat. A
// GPU makes one update.
void BlockRecord::record(unsigned thread, std::uintptr_t address, std::size_t bytes, Space space, Access access, const void* site, std::uint32_t widest, Update update) {
  Warp& warp = warps_[thread / kWarpSize];
  const unsigned number = thread % kWarpSize;
  Lane& lane = warp.lanes[number];
  if (access == Access::kAtomicCompare && lane.last_address == address) {
    if (lane.last == Access::kAtomicCompare) return;
    if (lane.last == Access::kAtomicLoad && lane.recorded) {
      const auto load = std::find_if(lane.events.rbegin(), lane.events.rend(), [](const Event& each) { return each.bytes != kStep; });
      if (load != lane.events.rend()) load->bytes = kNothing;
    }
  }
  const unsigned index = instruction_of({site, space, kind_of(access), kind_of(access) == Kind::kAtomic && space == Space::kShared ? update : Update::kNative});
  alone_[index] = access != Access::kLoad && access != Access::kStore;
  const Last before = std::exchange(warp.last[index][number], {address, lane.writes});
  const bool again = access == Access::kLoad && repeats(lane, before, address);
  if (access == Access::kLoad && lane.loop && lane.steps.size() > 1 && invariance_[index] != Invariance::kVaries) {
    const bool same = before.address == address && before.writes == lane.writes;
    invariance_[index] = same ? Invariance::kInvariant : Invariance::kVaries;
  }
  if (again) return;
  if (access == Access::kLoad) note(lane, {address, bytes, index});
  // A store in a loop that is always to one place of shared memory leaves the other places as they are. nvcc knows that.
  const bool one_place = access == Access::kStore && space == Space::kShared && before.address == address;
  if (!only_reads(access) && !one_place) lane.see_write(address);
  // A GPU splits an access to a larger object into instructions of equal size.
  const auto piece = static_cast<std::uint32_t>(std::min<std::size_t>(bytes & -bytes, widest));
  const std::uint64_t order = order_of(lane, site);
  for (std::size_t at = 0; at < bytes; at += piece) {
    lane.recorded = warp.accessed[index][number]++ < kMost;
    if (lane.recorded) lane.events.push_back({order, 0, address + at, index, piece});
    else ++left_out;
  }
  lane.last_address = address;
  lane.last = access;
}

void BlockRecord::step(unsigned thread, const void* site) {
  Warp& warp = warps_[thread / kWarpSize];
  const unsigned number = thread % kWarpSize, index = step_of(site);
  Lane& lane = warp.lanes[number];
  const std::uint64_t order = order_of(lane, site);
  lane.read.clear();
  if (warp.stepped[index][number]++ < kMost) lane.events.push_back({order, 0, 0, index, kStep});
}

void BlockRecord::change_depth(unsigned thread, int change) { lane_of(thread).depth += change; }

// A loop in another one takes its place: nvcc unrolls only the inner one.
void BlockRecord::begin_loop(unsigned thread, const void* site, bool remainder_last) {
  Lane& lane = lane_of(thread);
  lane.loop = order_of(lane, site);
  lane.remainder_last = remainder_last;
  lane.loop_start = lane.events.size();
  lane.steps.clear();
}

void BlockRecord::begin_step(unsigned thread) {
  Lane& lane = lane_of(thread);
  if (lane.loop) lane.steps.push_back(lane.events.size());
}

// Gives the events of the loop the order of nvcc's code: what comes before the first step, with the loads that read the
// same in each step, then a loop around four copies of the body, and one copy for the steps that remain.
void BlockRecord::end_loop(unsigned thread) {
  Lane& lane = lane_of(thread);
  std::vector<std::size_t>& steps = lane.steps;
  if (!lane.loop) return;
  const std::uint64_t loop = std::exchange(lane.loop, 0);
  if (!steps.empty()) {
    const auto at = [&](std::size_t i) { return lane.events.begin() + static_cast<std::ptrdiff_t>(i); };
    const auto invariant = [&](const Event& each) { return each.bytes != kStep && each.bytes != kNothing && invariance_[each.index] == Invariance::kInvariant; };
    steps.push_back(lane.events.size());
    steps.front() = static_cast<std::size_t>(std::stable_partition(at(steps[0]), at(steps[1]), invariant) - lane.events.begin());
    steps.pop_back();
  }
  const std::size_t remainder = steps.size() % kUnrolled, first = lane.remainder_last ? 0 : remainder;
  std::uint64_t copy = 0;
  std::size_t step = 0;
  for (std::size_t i = lane.loop_start; i < lane.events.size(); ++i) {
    for (; step < steps.size() && steps[step] <= i; ++step) {
      const bool remains = lane.remainder_last ? step >= steps.size() - remainder : step < remainder;
      copy = !remains ? 2 + (step - first) % kUnrolled : lane.remainder_last ? 2 + kUnrolled : 1;
    }
    Event& event = lane.events[i];
    event.inner = copy << kOrderBits | event.order;
    event.order = loop;
  }
}

void BlockRecord::meet(unsigned first, std::uint32_t lanes) {
  const std::uint64_t in_warp = std::min<std::uint64_t>(threads_ - first, kWarpSize);
  if (static_cast<std::uint64_t>(std::popcount(lanes)) != in_warp) return;  // threads that meet without others are together at this place anyway
  for (Lane& lane : warps_[first / kWarpSize].lanes) {
    lane.events.push_back({kMeeting, 0, 0, 0, kNothing});
    lane.see_write();  // of other threads
    lane.loop = 0;
  }
}

// Runs the warp again up to its next request. Returns whether there is one.
bool BlockRecord::run_to_request(Warp& warp, Request& request, unsigned& instruction) {
  for (;;) {
    std::pair<std::uint64_t, std::uint64_t> first{kMeeting, 0};
    std::uint32_t lanes = 0;
    for (unsigned i = 0; i < kWarpSize; ++i) {
      const Lane& lane = warp.lanes[i];
      if (lane.next >= lane.events.size()) continue;
      const std::pair order(lane.events[lane.next].order, lane.events[lane.next].inner);
      if (order < first) lanes = 0;
      first = std::min(first, order);
      if (order == first) lanes |= 1u << i;
    }
    if (!lanes) return false;
    const Lane& one = warp.lanes[static_cast<unsigned>(std::countr_zero(lanes))];
    const Event event = one.events[one.next];
    request = {0, event.bytes, {}};
    for_lanes(lanes, [&](unsigned i) {
      Lane& lane = warp.lanes[i];
      const Event& each = lane.events[lane.next];
      if (each.index != event.index || each.bytes != event.bytes) return;  // for example to another kind of memory
      request.lanes |= 1u << i;
      request.address[i] = each.address;
      ++lane.next;
    });
    if (event.order == kMeeting) warp.wide.end();  // a shuffle or vote
    if (event.bytes == kNothing) continue;
    instruction = event.index;
    if (event.bytes != kStep && copy_of_[instruction] < kNone) continue;
    if (event.bytes != kStep) return true;
    ++executed_[event.index].warps;
    executed_[event.index].threads += static_cast<std::uint64_t>(std::popcount(request.lanes));
  }
}

// Adds what was not recorded, as if the threads had done it together.
void BlockRecord::add_unrecorded(Warp& warp) {
  const auto beyond = [](std::uint32_t n) { return n - std::min(n, kMost); };
  for (std::size_t i = 0; i < warp.accessed.size(); ++i)
    for (const std::uint32_t n : std::exchange(warp.accessed[i], {}))
      if (beyond(n)) sums[instructions_[i]].left_out += beyond(n);
  for (std::size_t i = 0; i < warp.stepped.size(); ++i) {
    const ByLane counts = std::exchange(warp.stepped[i], {});
    const std::uint32_t most = beyond(*std::max_element(counts.begin(), counts.end()));
    executed_[i].warps += most;
    for (const std::uint32_t n : counts) executed_[i].threads += beyond(n);
  }
}

void BlockRecord::add_request(unsigned index, const Request& request) {
  const Instruction& instruction = instructions_[index];
  sums[instruction].add(request, instruction.space, instruction.kind, instruction.update);
}

// Requests to shared memory are added when the warps have been run again, because they may be parts of wide ones.
void BlockRecord::add_shared(Warp& warp, unsigned index, const Request& request) {
  if (alone_[index]) {
    warp.wide.end();
    add_request(index, request);
  } else {
    warp.wide.add(request, index, instructions_[index].kind);
  }
}

void BlockRecord::settle() {
  Request request;
  unsigned index = 0;
  std::vector<WideAccesses::Run> runs;
  for (Warp& warp : warps_) {
    while (run_to_request(warp, request, index)) {
      if (instructions_[index].space == Space::kShared) {
        add_shared(warp, index, request);
      } else {
        add_request(index, request);
      }
    }
    warp.wide.take(runs);
  }
  widen(
    neighbours_.split(runs), [&](unsigned first, const Request& wide) { add_request(first, wide); },
    [&](unsigned first, std::uint64_t threads) { sums[instructions_[first]].merged += threads; });
  for (Warp& warp : warps_) {
    add_unrecorded(warp);
    for (Lane& lane : warp.lanes) {
      lane.events.clear();
      lane.next = 0;
      lane.last = Access::kLoad;
      lane.see_write();
      lane.loop = 0;
    }
  }
}

void BlockRecord::release() {
  settle();
  for (Warp& warp : warps_)
    for (Lane& lane : warp.lanes) std::vector<Event>().swap(lane.events);
}

std::map<const void*, Executed> BlockRecord::executed() const {
  std::map<const void*, Executed> all;
  for (std::size_t i = 0; i < sites_.size(); ++i) all[sites_[i]] = executed_[i];
  return all;
}

}  // namespace emulator::profile
