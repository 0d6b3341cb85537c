// A block's threads, from one barrier to the next.
#include "core.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>

#include "emulator/profile.h"
#include "emulator/sanitize.h"

EMULATOR_BUILT_IN uint3 threadIdx{}, blockIdx{};
EMULATOR_BUILT_IN dim3 blockDim, gridDim;

namespace emulator {

EMULATOR_BUILT_IN char* dynamic_shared = nullptr;
EMULATOR_BUILT_IN unsigned row_end = 0;

EMULATOR_BUILT_IN Core* core = nullptr;

namespace {

constexpr std::size_t kStackBytes = 256 * 1024;
constexpr std::size_t kAlignment = 1024;  // of shared memory, the strictest any instruction asks for

}  // namespace

void Core::begin_launch(const Launch& launch) {
  launch_ = &launch;
  const SharedMemory shared = static_memory_of(reinterpret_cast<const void*>(launch.body));
  static_ = shared.data;
  static_bytes_ = shared.bytes;
  kept_.assign(static_, static_ + static_bytes_);
  const dim3& b = launch.block;
  threads_.resize(b.x * b.y * b.z);
  ready_.resize(threads_.size());
  warps_.resize((threads_.size() + kWarpSize - 1) / kWarpSize);
  for (unsigned i = 0; i < threads_.size(); ++i) threads_[i] = {{i % b.x, i / b.x % b.y, i / b.x / b.y}};
  blockDim = launch.block;
  gridDim = launch.grid;
  if (launch.shared_bytes + kAlignment > dynamic_.size()) dynamic_.resize(launch.shared_bytes + kAlignment);
  if (sanitize::on) sanitize::static_memory(static_, static_bytes_);
  if (sanitize::on) sanitized_ = sanitize::dynamic_memory(launch.shared_bytes);
  dynamic_shared = dynamic_start();
}

char* Core::dynamic_start() {
  if (sanitize::on) return sanitized_;
  const auto start = reinterpret_cast<std::uintptr_t>(dynamic_.data());
  return reinterpret_cast<char*>((start + kAlignment - 1) / kAlignment * kAlignment);
}

// pybind11, for one, keeps thread-local state of its own in the same block.
void Core::end_launch() {
  if (static_bytes_) std::memcpy(static_, kept_.data(), static_bytes_);
  launch_ = nullptr;
}

// Whether an address is in the running block's shared memory. Between launches, host code asks and there is none.
bool Core::holds(const void* address) const {
  if (!launch_) return false;
  const auto* at = static_cast<const char*>(address);
  return (at >= static_ && at < static_ + static_bytes_) || (at >= dynamic_shared && at < dynamic_shared + launch_->shared_bytes);
}

// Shared memory starts as whatever the last block left there: all ones read as NaN, and so show.
void Core::poison() {
  if (static_bytes_) std::memset(static_, 0xFF, static_bytes_);
  if (launch_->shared_bytes) std::memset(dynamic_shared, 0xFF, launch_->shared_bytes);
}

void Core::begin_block(std::uint64_t number) {
  const dim3& grid = launch_->grid;
  blockIdx = {static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y), static_cast<unsigned>(number / grid.x / grid.y)};
  next_ = 0;
  alive_ = static_cast<unsigned>(threads_.size());
  row_end = sanitize::on ? 0 : blockDim.x;
  poison();
  if (!sanitize::on) return;
  open_books();
  sanitize::begin_block(number, alive_);
}

// Nobody has waited yet.
void Core::open_books() {
  const auto n = static_cast<unsigned>(threads_.size());
  for (unsigned w = 0; w < warps_.size(); ++w) {
    const unsigned lanes = std::min(kWarpSize, n - w * kWarpSize);
    warps_[w].alive = lanes == kWarpSize ? ~0u : (1u << lanes) - 1;
    warps_[w].converging = 0;
    warps_[w].gatherings.clear();
  }
  ready_head_ = ready_count_ = waiting_ = votes_ = voters_ = at_grid_ = converging_ = 0;
  in_step_ = false;
}

void Core::run_block(std::uint64_t number) {
  begin_block(number);
  go();
  if (alive_) stuck();
}

// The blocks of a cooperative launch take turns on one core: what is each block's own is put away in between.
void Core::enter() {
  core = this;
  blockIdx = block_;
  row_end = row_end_;
  dynamic_shared = dynamic_start();
  if (static_bytes_) std::memcpy(static_, shared_.data(), static_bytes_);
  if (sanitize::on) sanitize::resume_block((static_cast<std::uint64_t>(block_.z) * gridDim.y + block_.y) * gridDim.x + block_.x);
}

void Core::leave() {
  block_ = blockIdx;
  row_end_ = row_end;
  shared_.assign(static_, static_ + static_bytes_);
}

// Runs the block until it waits for the grid (true) or is done.
bool Core::advance() {
  if (!alive_) return false;
  enter();
  go();
  if (alive_ && at_grid_ < alive_) stuck();
  leave();
  return alive_;
}

State Core::wait_at_grid(State here) {
  Thread& thread = left(here);
  if (!launch_->cooperative) {
    set_fault(name(index_of(thread)) + " waits for the grid, but the launch is not cooperative");
    return here;
  }
  ++at_grid_;
  thread.at_grid = true;
  return next();
}

void Core::release_grid() {
  at_grid_ = 0;
  for (unsigned i = 0; i < threads_.size(); ++i) {
    if (!threads_[i].at_grid) continue;
    threads_[i].at_grid = false;
    push_ready(i);
  }
}

// The next row of the block's threads.
bool Core::next_row() {
  if (threadIdx.y + 1 == blockDim.y && threadIdx.z + 1 == blockDim.z) return false;
  threadIdx.x = 0;
  if (++threadIdx.y == blockDim.y) threadIdx.y = 0, ++threadIdx.z;
  return true;
}

// A thread is about to wait: those before it are done, those behind it have not begun.
void Core::keep_books() {
  row_end = 0;
  open_books();
  const unsigned index = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  running_ = &threads_[index];
  next_ = index + 1;
  alive_ -= index;
  for (unsigned i = 0; i < index; ++i) warps_[i / kWarpSize].alive &= ~(1u << i % kWarpSize);
}

void Core::place(unsigned index) {
  running_ = &threads_[index];
  threadIdx = running_->at;
  if (sanitize::on) sanitize::switch_to(index);
}

Fiber::Fiber(Core* core)
    : core(core), stack(kStackBytes), state(stack.begin([](void* self) { static_cast<Fiber*>(self)->core->run_threads(static_cast<Fiber*>(self)); }, this)) {}

// Runs threads until none can go on.
void Core::go() {
  emulator_wait(reinterpret_cast<std::uint64_t>(this), 0, [](std::uint64_t self, std::uint64_t, State here) {
    Core& core = *reinterpret_cast<Core*>(self);
    core.main_ = here;
    return core.next();
  });
}

// Who goes on: a thread that was woken, else one not yet begun, else the core.
State Core::next() {
  if (converging_ && !ready_count_ && next_ == threads_.size()) release_converged();
  if (ready_count_) {
    place(ready_[ready_head_]);
    if (!in_step_) pop_ready();
    return running_->state;
  }
  return next_ < threads_.size() ? next_fiber() : main_;
}

State Core::next_fiber() {
  if (idle_.empty()) idle_.push_back(fibers_.emplace_back(std::make_unique<Fiber>(this)).get());
  Fiber* fiber = idle_.back();
  idle_.pop_back();
  return fiber->state;
}

State Core::wait_for_turn(State here) {
  push_ready(index_of(left(here)));
  return next_ < threads_.size() ? next_fiber() : next();
}

State Core::wait_for_lanes(State here) {
  const unsigned index = index_of(left(here)), bit = index % kWarpSize;
  Warp& warp = warps_[index / kWarpSize];
  warp.site[bit] = caller_of(here);
  warp.converging |= 1u << bit;
  here->answer = reinterpret_cast<std::uint64_t>(&warp.converged);
  ++converging_;
  return next();
}

// One place in the code of each warp: the lanes that wait there are together, and go on.
void Core::release_converged() {
  for (unsigned w = 0; w < warps_.size(); ++w) {
    Warp& warp = warps_[w];
    if (!warp.converging) continue;
    const void* site = warp.site[std::countr_zero(warp.converging)];
    warp.converged = 0;
    for (unsigned i = 0; i < kWarpSize; ++i) {
      if (!(warp.converging >> i & 1) || warp.site[i] != site) continue;
      warp.converged |= 1u << i;
      --converging_;
      push_ready(w * kWarpSize + i);
    }
    warp.converging &= ~warp.converged;
  }
}

void Core::run_threads(Fiber* fiber) {
  for (;;) {
    while (next_ < threads_.size()) {
      place(sanitize::on ? sanitize::nth_thread(next_++) : next_++);
      sanitize::on ? sanitize::run_thread(launch_->body, launch_->arguments) : launch_->body(launch_->arguments);
      if (row_end) {
        next_ = static_cast<unsigned>(threads_.size());
        alive_ = 0;
      } else {
        finish(self());
      }
    }
    emulator_wait(reinterpret_cast<std::uint64_t>(fiber), 0, [](std::uint64_t self, std::uint64_t, State here) {
      auto* fiber = reinterpret_cast<Fiber*>(self);
      fiber->state = here;
      fiber->core->idle_.push_back(fiber);
      return fiber->core->next();
    });
  }
}

void Core::finish(Thread& thread) {
  --alive_;
  const unsigned index = index_of(thread);
  Warp& warp = warps_[index / kWarpSize];
  warp.alive &= ~(1u << index % kWarpSize);
  for (auto& gathering : warp.gatherings)
    if (gathering.arrived && gathering.arrived == (gathering.mask & warp.alive)) release(gathering, index / kWarpSize * kWarpSize);
  if (alive_ && waiting_ == alive_) release_barrier();
}

// Wakes everyone at the barrier, in index order, and remembers the vote until the next one.
void Core::release_barrier() {
  if (profile::on) profile::met_at_barrier();
  if (sanitize::on) sanitize::release_barrier(alive_);
  outcome_ = {votes_, votes_ == voters_, votes_ > 0};
  votes_ = voters_ = waiting_ = ready_head_ = 0;
  for (unsigned place = 0; place < threads_.size(); ++place) {
    const unsigned i = sanitize::on ? sanitize::nth_thread(place) : place;
    if (!threads_[i].at_barrier) continue;
    threads_[i].at_barrier = false;
    push_ready(i);
  }
  in_step_ = !sanitize::on;
}

State Core::wait_at_barrier(bool vote, State here) {
  here->answer = reinterpret_cast<std::uint64_t>(&outcome_);
  Thread& thread = left(here);
  if (sanitize::on) sanitize::arrive(index_of(thread), caller_of(here), true);
  ++waiting_;
  ++voters_;
  votes_ += vote;
  thread.at_barrier = true;
  if (waiting_ == alive_) release_barrier();
  return next();
}

// Those who left a barrier together mostly come to the next one together. While they do, in the order in which they
// left, nothing is written down of whoever waits: the ring stands still, and its head goes from one to the next.
inline State Core::step(bool vote, State here) {
  here->answer = reinterpret_cast<std::uint64_t>(&outcome_);
  votes_ += vote;
  running_->state = here;
  if (++ready_head_ == ready_count_) {
    if (profile::on) profile::met_at_barrier();
    outcome_ = {votes_, votes_ == ready_count_, votes_ > 0};
    votes_ = ready_head_ = 0;
  }
  running_ = &threads_[ready_[ready_head_]];
  threadIdx = running_->at;
  return running_->state;
}

// The running thread does something else: those before it wait at the barrier, those behind it can run.
void Core::fall_out_of_step() {
  in_step_ = false;
  waiting_ = voters_ = ready_head_;
  for (unsigned place = 0; place < ready_head_; ++place) threads_[ready_[place]].at_barrier = true;
  ready_count_ -= ready_head_;
  pop_ready();
}

void Core::release(Gathering& gathering, unsigned first) {
  std::memcpy(gathering.values, gathering.given, sizeof gathering.given);
  gathering.lanes = gathering.arrived;
  if (profile::on) profile::met_in_warp();
  if (sanitize::on) sanitize::release_warp(first, gathering.lanes);
  gathering.arrived = 0;
  for (unsigned i = 0; i < kWarpSize; ++i)
    if (gathering.lanes >> i & 1) push_ready(first + i);
}

// Lanes read an outcome as soon as they go on, so one that nobody is to go on from is free. Every other has a lane of
// its own, in it or on the way out of it: a warp needs no more of them than it has lanes, and they stay where they are.
Gathering& Core::gathering_of(unsigned which, std::uint32_t mask) {
  auto& all = warps_[which].gatherings;
  for (Gathering& each : all)
    if (each.mask == mask) return each;
  if (all.size() < kWarpSize) {
    all.reserve(kWarpSize);
    all.emplace_back();
  }
  Gathering* free = &all.back();
  if (free->mask) free = &*std::find_if(all.begin(), all.end(), [&](const Gathering& each) { return !each.arrived && !wakes(which * kWarpSize, each.lanes); });
  free->mask = mask;
  return *free;
}

// Whether one of these lanes of the warp that begins with thread `first` is about to go on.
bool Core::wakes(unsigned first, std::uint32_t lanes) const {
  for (unsigned i = 0; i < ready_count_; ++i) {
    const unsigned index = ready_[(ready_head_ + i) % ready_.size()];
    if (index >= first && index < first + kWarpSize && lanes >> (index - first) & 1) return true;
  }
  return false;
}

State Core::wait_in_warp(std::uint32_t mask, std::uint64_t value, State here) {
  const unsigned index = index_of(left(here)), which = index / kWarpSize, bit = index % kWarpSize;
  if (sanitize::on) sanitize::arrive(index, caller_of(here), false);
  if (!(mask >> bit & 1)) {
    if (sanitize::on) sanitize::outside_mask(index);
    set_fault(name(index) + " took part in a warp operation whose mask leaves it out");
    mask |= 1u << bit;
  }
  Gathering& gathering = gathering_of(which, mask);
  if (sanitize::on) sanitize::keep_quiet(warps_[which].gatherings.data(), kWarpSize * sizeof(Gathering));
  gathering.given[bit] = value;
  gathering.arrived |= 1u << bit;
  here->answer = reinterpret_cast<std::uint64_t>(static_cast<const Meeting*>(&gathering));
  if (gathering.arrived == (mask & warps_[which].alive)) release(gathering, which * kWarpSize);
  return next();
}

std::string Core::name(unsigned index) const {
  char text[160];
  const dim3& b = launch_->block;
  std::snprintf(text, sizeof text, "thread (%u, %u, %u) of block (%u, %u, %u)", index % b.x, index / b.x % b.y, index / b.x / b.y,
                blockIdx.x, blockIdx.y, blockIdx.z);
  return text;
}

// Nobody can run and somebody still waits: on a GPU this hangs or goes on wrongly.
void Core::stuck() {
  unsigned blocked = 0;
  while (blocked + 1 < threads_.size() && !threads_[blocked].at_barrier) ++blocked;
  if (waiting_) {
    set_fault(name(blocked) + " waits at a barrier that " + std::to_string(alive_ - waiting_) + " threads of its block never reach");
  } else {
    for (blocked = 0; !(warps_[blocked / kWarpSize].alive >> blocked % kWarpSize & 1);) ++blocked;
    set_fault(name(blocked) + " waits in a warp operation for lanes that never come");
  }
  if (sanitize::on) sanitize::never_reached(blocked, waiting_ > 0);
  for (Thread& thread : threads_) thread.at_barrier = thread.at_grid = false;
  fibers_.clear();  // their stacks hold threads that will never go on
  idle_.clear();
}

// ------------------------------------------------------------------------------------- as kernels say it

State at_barrier(std::uint64_t vote, std::uint64_t, State here) { return core->in_step() ? core->step(vote, here) : core->wait_at_barrier(vote, here); }
State at_grid_barrier(std::uint64_t, std::uint64_t, State here) { return core->wait_at_grid(here); }
State in_warp(std::uint64_t mask, std::uint64_t value, State here) { return core->wait_in_warp(static_cast<std::uint32_t>(mask), value, here); }
State for_lanes(std::uint64_t, std::uint64_t, State here) { return core->wait_for_lanes(here); }
State for_turn(std::uint64_t, std::uint64_t, State here) { return core->wait_for_turn(here); }
bool grid_is_cooperative() { return core->cooperative(); }
bool next_row() { return core->next_row(); }
void fail_in_kernel(const char* what) { core->fail(what); }
bool is_shared(const void* address) { return core && core->holds(address); }

void before_atomic() {
  thread_local unsigned attempts = 0;
  if (++attempts % 1024 == 0) yield();
}

}  // namespace emulator
