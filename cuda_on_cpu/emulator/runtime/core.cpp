// Runs the threads of a block: starts them, stops them at barriers and continues them.
#include "core.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <stdexcept>

#include "emulator/profile.h"
#include "emulator/sanitize.h"
#include "pending.h"
#include "time_slices.h"

EMULATOR_BUILT_IN uint3 threadIdx{}, blockIdx{};
EMULATOR_BUILT_IN dim3 blockDim, gridDim;

namespace emulator {

EMULATOR_BUILT_IN char* dynamic_shared = nullptr;
EMULATOR_BUILT_IN bool carry = false;
EMULATOR_BUILT_IN unsigned row_end = 0;

EMULATOR_BUILT_IN Core* core = nullptr;

namespace {

constexpr std::size_t kStackBytes = 256 * 1024;
constexpr std::size_t kAlignment = 1024;  // the largest alignment of shared memory that an instruction needs
// An H200 reserves shared memory in pieces of this size. An access past the last piece of a block faults.
constexpr std::size_t kPiece = 128;
// A descriptor of wgmma holds the lowest 18 bits of an address. Static and dynamic shared memory have 227 KiB at most, so
// they fit one window of this size.
constexpr std::size_t kWindow = 1 << 18;
constexpr unsigned kMostBarrenEnds = 100;

std::uintptr_t number_of(const void* address) { return reinterpret_cast<std::uintptr_t>(address); }
std::size_t rounded(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

Core::Core(Group* group)
    : group_(group), shares_stacks_(group && group->stacks()), engine_(group ? &group->engine() : &own_engine_), stacks_(shares_stacks_ ? *group->stacks() : own_stacks_) {}
Core::~Core() = default;

bool Engine::run_one() {
  if (work.empty()) return false;
  const auto first = std::move(work.front());
  work.pop_front();
  ++events;
  first();
  return true;
}

void Core::begin_launch(const Launch& launch) {
  launch_ = &launch;
  refused_ = false;
  library_ = library_of(reinterpret_cast<const void*>(launch.body));
  const dim3& b = launch.block;
  threads_.resize(b.x * b.y * b.z);
  ready_.resize(threads_.size());
  warps_.resize((threads_.size() + kWarpSize - 1) / kWarpSize);
  for (unsigned i = 0; i < threads_.size(); ++i) threads_[i] = {{i % b.x, i / b.x % b.y, i / b.x / b.y}};
  blockDim = launch.block;
  gridDim = launch.grid;
  host_static_ = statics_of(library_.module);
  place_shared();
  if (!group_) enter_shared();
}

// Places the shared memory so that it ends before memory that cannot be accessed: the kernel's static part, behind it the
// dynamic one, and the rest of the last piece that the block gets on a GPU.
void Core::place_shared() {
  part_ = static_part(library_, launch_->kernel);
  if (sanitize::on) part_ = {0, library_.bytes, library_.bytes, false, true};
  const std::size_t dynamic_bytes = sanitize::on ? 0 : launch_->shared_bytes;
  const std::size_t unit = part_.wide ? kAlignment : 16;
  const std::size_t behind = rounded(part_.high, unit);
  const std::size_t end = dynamic_bytes ? behind + dynamic_bytes : part_.high;
  const std::size_t used = dynamic_bytes ? rounded(part_.used, 16) + dynamic_bytes : part_.used;
  // How much of the last piece is used is known only if it is known which variables the kernel uses. The sanitizer lets
  // an access that exceeds the end happen, after it has reported it.
  const std::size_t rest = part_.exact ? rounded(used, kPiece) - used : kPiece;
  const std::size_t bytes = rounded(end + rest, std::max(unit, library_.alignment));
  shared_.resize(bytes - part_.low);
  static_ = shared_.end() - bytes;
  dynamic_ = sanitize::on ? sanitize::dynamic_memory(launch_->shared_bytes, static_ + behind) : static_ + behind;
  if (sanitize::on) sanitize::static_memory(static_, part_.high);
}

void Core::enter_shared() {
  dynamic_shared = dynamic_;
  move_statics(library_.module, static_);
}

void Core::end_launch() {
  engine_->run_all();
  move_statics(library_.module, host_static_);
  launch_ = nullptr;
}

// Returns whether an address is in the running block's shared memory. Host code calls this, too. Then no block runs,
// and the result is false.
bool Core::holds(const void* address) const {
  return launch_ && (in_static(address) || in_dynamic(address));
}

bool Core::is_on_stack(const void* address) const {
  const auto* at = static_cast<const char*>(address);
  return launch_ && std::any_of(stacks_.begin(), stacks_.end(), [at](const auto& stack) { return stack->low() <= at && at < stack->top(); });
}

std::size_t Core::shared_bytes() const { return rounded(rounded(part_.used, 16) + launch_->shared_bytes, kPiece); }

// Returns the address in the shared memory of the running block, or of another block of its cluster, that has these lower
// 32 bits.
void* Core::shared_at(std::uint32_t low) {
  const auto from = [&](char* start, std::size_t bytes) -> char* {
    const std::uint32_t offset = low - static_cast<std::uint32_t>(number_of(start));
    return offset < bytes ? start + offset : nullptr;
  };
  const auto in_block = [&](const Core* block) -> char* {
    char* found = from(block->static_, static_cast<std::size_t>(shared_.end() - static_));
    return found ? found : from(block->dynamic_, launch_->shared_bytes);
  };
  if (char* found = in_block(this)) return found;
  for (const Core* peer : peers_)
    if (char* found = in_block(peer)) return found;
  if (char* found = from(shared_.end(), SharedRegion::kGuard)) return found;  // an access to it faults
  fail("an access to shared memory at an address that is not there");
  alignas(kAlignment) static char nowhere[kAlignment];
  return nowhere;
}

char* Core::matrix_at(std::uint32_t low) {
  const auto offset = [&](const char* start) { return (low - number_of(start)) % kWindow; };
  if (offset(dynamic_) < launch_->shared_bytes) return dynamic_ + offset(dynamic_);
  if (offset(static_) < part_.high) return static_ + offset(static_);
  return nullptr;
}

void* Core::in_block(const void* address, unsigned rank) {
  if (rank >= std::max<std::size_t>(peers_.size(), 1)) return fail("an access to the shared memory of a block that the cluster does not have"), const_cast<void*>(address);
  const char* at = static_cast<const char*>(address);
  if (peers_.empty()) return const_cast<char*>(at);
  return in_dynamic(at) ? peers_[rank]->dynamic_ + (at - dynamic_) : peers_[rank]->static_ + (at - static_);
}

unsigned Core::rank_of(const void* address) const {
  for (const Core* peer : peers_)
    if (peer->holds(address)) return peer->rank_;
  return rank_;
}

bool Core::overruns(const void* address, std::size_t bytes) const {
  const char* at = static_cast<const char*>(address);
  const auto exceeds = [&](const Core* block) { return block->shared_.guards(at) || (at >= block->static_ && at < block->shared_.end() && at + bytes > block->shared_.end()); };
  return exceeds(this) || std::any_of(peers_.begin(), peers_.end(), exceeds);
}

std::string Core::fault_at(const void* address) const {
  const char* at = static_cast<const char*>(address);
  char place[32];
  std::snprintf(place, sizeof place, "0x%llx", static_cast<unsigned long long>(number_of(at)));
  std::string text = "an access to the address " + std::string(place) + ", where no memory is";
  const auto guards = [&](const Core* block) { return block->shared_.guards(at); };
  const auto peer = std::find_if(peers_.begin(), peers_.end(), guards);
  if (const Core* block = peer == peers_.end() ? this : *peer; guards(block))
    text = at < block->shared_.end() ? "an access before the shared memory of its block" : "an access " + std::to_string(at - block->shared_.end()) + " bytes past the shared memory of its block";
  return text + " (" + launch_->kernel + ", launched at " + launch_->file + ":" + std::to_string(launch_->line) + ")";
}

std::string Core::where(const void* address) const {
  const char* at = static_cast<const char*>(address);
  const auto text = [](const char* memory, std::ptrdiff_t byte) { return "byte " + std::to_string(byte) + " of " + memory + " shared memory"; };
  if (in_static(at)) return text("static", at - static_);
  if (in_dynamic(at)) return text("dynamic", at - dynamic_);
  const unsigned rank = rank_of(at);
  return rank == rank_ ? "" : "an address of block " + std::to_string(rank) + " of the cluster";
}

Pending& Core::pending() {
  if (!pending_) pending_ = std::make_unique<Pending>(threads_.size());
  return *pending_;
}

// Fills shared memory with ones. On a GPU, shared memory starts with arbitrary contents. Ones read as NaN, so a missing
// initialisation shows in the output.
void Core::poison() {
  std::memset(static_ + part_.low, 0xFF, shared_.end() - static_ - part_.low);
  if (sanitize::on && launch_->shared_bytes) std::memset(dynamic_, 0xFF, launch_->shared_bytes);
}

void Core::begin_block(std::uint64_t number) {
  const dim3& grid = launch_->grid;
  engine_->run_all();  // what the block before has begun
  pending_.reset();
  engine_->cluster_arrived = 0;
  blockIdx = {static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y), static_cast<unsigned>(number / grid.x / grid.y)};
  next_ = interrupted_ = 0;
  abandoned_ = false;
  alive_ = static_cast<unsigned>(threads_.size());
  const bool reports = sanitize::on || profile::on;  // then each thread runs by itself, so that all begin alike
  row_end = reports ? 0 : blockDim.x;
  poison();
  if (reports) reset_records();
  if (sanitize::on) sanitize::begin_block(number, alive_);
}

// Clears the records of waiting threads. The caller guarantees that no thread of the block has waited yet.
void Core::reset_records() {
  const auto n = static_cast<unsigned>(threads_.size());
  for (unsigned w = 0; w < warps_.size(); ++w) {
    const unsigned lanes = std::min(kWarpSize, n - w * kWarpSize);
    warps_[w].alive = lanes == kWarpSize ? ~0u : (1u << lanes) - 1;
    warps_[w].converging = 0;
    warps_[w].gatherings.clear();
  }
  for (Thread& thread : threads_) thread.state = nullptr, thread.waits = nullptr;
  ready_head_ = ready_count_ = waiting_ = votes_ = voters_ = at_grid_ = converging_ = parked_ = 0;
  lockstep_ = false;
}

// Begins the n-th block to run. The sanitizer runs the blocks in another order.
void Core::start_block(std::uint64_t n) { begin_block(sanitize::on ? sanitize::nth_block(n) : n); }

void Core::run_blocks(std::uint64_t first, std::uint64_t end) {
  end_ = end;
  for (number_ = first; number_ < end_ && !(sanitize::on && sanitize::launch_aborted()); ++number_) {
    start_block(number_);
    do run_until_blocked();
    while (alive_ && !abandoned_ && (engine_->run_one() || end_waits()));
    if (abandoned_) return drop_threads();
    if (alive_) report_deadlock();
  }
}

// While other blocks of a group use the stacks, a block keeps the parts that its waiting threads use. An
// H200 holds up to 270,336 threads, each of which has only some hundred bytes on its stack at a grid barrier.
void Core::keep_stacks() {
  std::vector<Fiber*> by_address;
  for (auto& fiber : fibers_) fiber->lowest = nullptr, by_address.push_back(fiber.get());
  for (Fiber* fiber : idle_) fiber->lowest = fiber->state;
  const auto before = [](const char* at, const Fiber* fiber) { return at < fiber->stack.low(); };
  std::sort(by_address.begin(), by_address.end(), [](const Fiber* a, const Fiber* b) { return a->stack.low() < b->stack.low(); });
  for (const Thread& thread : threads_) {
    if (!thread.state) continue;
    const auto after = std::upper_bound(by_address.begin(), by_address.end(), reinterpret_cast<const char*>(thread.state), before);
    (*std::prev(after))->lowest = thread.state;
  }
  for (auto& fiber : fibers_)
    if (fiber->lowest) fiber->kept.assign(reinterpret_cast<const char*>(fiber->lowest), fiber->stack.top());
}

void Core::restore_stacks() {
  for (auto& fiber : fibers_)
    if (fiber->lowest) std::memcpy(fiber->lowest, fiber->kept.data(), fiber->kept.size());
}

// Begins the turn of this block in a group. `enter` restores the block's state, and `leave` stores it while another block
// runs.
void Core::enter() {
  core = this;
  if (shares_stacks_) restore_stacks();
  blockIdx = block_;
  row_end = row_end_;
  enter_shared();
  if (sanitize::on) sanitize::resume_block((static_cast<std::uint64_t>(block_.z) * gridDim.y + block_.y) * gridDim.x + block_.x);
}

void Core::leave() {
  if (shares_stacks_) keep_stacks();
  block_ = blockIdx;
  row_end_ = row_end;
}

// Runs the block until all its threads have finished, wait, or spin on memory.
Turn Core::advance() {
  if (!alive_) return Turn::kNone;
  enter();
  moved_ = false;
  run_until_blocked();
  if (abandoned_) drop_threads();
  leave();
  return moved_ ? Turn::kRan : ready_count_ ? Turn::kSpun : Turn::kNone;
}

State Core::wait_at_grid(State here) {
  Thread& thread = suspended(here);
  if (!launch_->cooperative) {
    set_fault(name(index_of(thread)) + " waits at a grid barrier, but the launch is not cooperative");
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

// Moves threadIdx to the start of the next row of the block's threads. Returns false if there is none.
bool Core::next_row() {
  if (threadIdx.y + 1 == blockDim.y && threadIdx.z + 1 == blockDim.z) return false;
  threadIdx.x = 0;
  if (++threadIdx.y == blockDim.y) threadIdx.y = 0, ++threadIdx.z;
  return true;
}

// Begins to record waiting threads, because the running thread is the first that waits. The threads before it have
// finished, and the threads behind it have not begun.
void Core::start_records() {
  row_end = 0;
  reset_records();
  const unsigned index = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  running_ = &threads_[index];
  next_ = index + 1;
  alive_ -= index;
  for (unsigned i = 0; i < index; ++i) warps_[i / kWarpSize].alive &= ~(1u << i % kWarpSize);
}

// Wakes the threads for whose conditions `wakes` is true. Their waits return `answer`. Returns whether there are any.
template <class Wakes>
bool Core::wake_if(Wakes wakes, bool answer) {
  const unsigned parked = parked_;
  for (unsigned place = 0; place < threads_.size(); ++place) {
    const unsigned i = sanitize::on ? sanitize::nth_thread(place) : place;
    if (!threads_[i].waits || !wakes(*threads_[i].waits)) continue;
    threads_[i].waits = nullptr;
    threads_[i].state->answer = answer;
    --parked_;
    push_ready(i);
  }
  return parked_ < parked;
}

bool Core::wake() {
  return wake_if([](Waiting& waiting) { return waiting.holds(); }, true);
}

bool Core::end_waits() {
  barren_ = ended_at_ == engine_->events ? barren_ + 1 : 0;
  ended_at_ = engine_->events;
  return barren_ <= kMostBarrenEnds && wake_if([](const Waiting& waiting) { return waiting.ends(); }, false);
}

State Core::wait_until(Waiting& waiting, State here) {
  suspended(here).waits = &waiting;
  ++parked_;
  return next();
}

void Core::place(unsigned index) {
  running_ = &threads_[index];
  threadIdx = running_->at;
  if (sanitize::on) sanitize::switch_to(index);
}

Fiber::Fiber(Core* core, Stack& stack)
    : core(core), stack(stack), state(stack.begin([](void* self) { static_cast<Fiber*>(self)->core->run_threads(static_cast<Fiber*>(self)); }, this)) {}

// Runs the block's threads until none can continue.
void Core::run_until_blocked() {
  emulator_wait(reinterpret_cast<std::uint64_t>(this), 0, [](std::uint64_t self, std::uint64_t, State here) {
    Core& core = *reinterpret_cast<Core*>(self);
    core.main_ = here;
    return core.resume();
  });
}

// Returns the state of the context that runs next: a thread that was woken, else a thread that has not begun, else the
// core's own context.
State Core::next() {
  turns_ = 0;
  moved_ = true;
  return resume();
}

State Core::resume() {
  if (!ready_count_ && next_ == threads_.size()) {
    if (parked_) wake();
    if (converging_ && !ready_count_) release_converged();
  }
  if (ready_count_) {
    place(ready_[ready_head_]);
    if (!lockstep_) pop_ready();
    return running_->state;
  }
  return next_ < threads_.size() ? next_fiber() : main_;
}

State Core::next_fiber() {
  if (idle_.empty()) {
    if (stacks_.size() == fibers_.size()) stacks_.push_back(std::make_unique<Stack>(kStackBytes));
    idle_.push_back(fibers_.emplace_back(std::make_unique<Fiber>(this, *stacks_[fibers_.size()])).get());
  }
  Fiber* fiber = idle_.back();
  idle_.pop_back();
  return fiber->state;
}

State Core::wait_for_turn(State here) {
  push_ready(index_of(suspended(here)));
  if (next_ < threads_.size()) return next_fiber();
  // All others spin, so that they may wait for what a parked or a converging thread does next, such as the release of a
  // lock, or for another block.
  if (++turns_ <= 2 * ready_count_) return resume();
  turns_ = 0;
  const bool woken = parked_ && wake();
  if (!woken && converging_) release_converged();
  else if (!woken && group_) return main_;
  else if (!woken && parked_) engine_->run_one();
  return resume();
}

void Core::run_threads(Fiber* fiber) {
  for (;;) {
    while (next_ < threads_.size()) {
      place(sanitize::on ? sanitize::nth_thread(next_++) : next_++);
      sanitize::on ? sanitize::run_thread(launch_->body, launch_->arguments) : launch_->body(launch_->arguments);
      if (row_end) {
        next_ = static_cast<unsigned>(threads_.size());
        alive_ = 0;
        if (number_ + 1 < end_) start_block(++number_);  // no thread waited, so this stack runs the next block
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

// Fails the launch, because the block is larger than the kernel's launch bounds. All blocks are, so the core runs no
// further ones.
void Core::refuse_block(long long most) {
  end_ = number_ + 1;
  if (refused_) return;
  refused_ = true;
  const dim3& b = launch_->block;
  char text[160];
  std::snprintf(text, sizeof text, "the block is %ux%ux%u, which are %zu threads: the __launch_bounds__ of this kernel allow at most %lld", b.x, b.y, b.z,
                threads_.size(), most);
  set_fault(text, cudaErrorInvalidValue);
}

bool Core::lacks_cluster(dim3 cluster) {
  const dim3& given = launch_->cluster;
  const bool same = given.x == cluster.x && given.y == cluster.y && given.z == cluster.z;
  if (!same) end_ = number_ + 1, want_cluster(cluster);
  return !same;
}

void Core::finish(Thread& thread) {
  --alive_;
  ++engine_->events;
  moved_ = true;
  thread.state = nullptr;
  const unsigned index = index_of(thread);
  Warp& warp = warps_[index / kWarpSize];
  warp.alive &= ~(1u << index % kWarpSize);
  for (auto& gathering : warp.gatherings)
    if (gathering.arrived && gathering.arrived == (gathering.mask & warp.alive)) release(gathering, index / kWarpSize * kWarpSize);
  if (alive_ && waiting_ == alive_) release_barrier();
}

// Wakes all threads at the barrier, those of the last warp first, and gives them the result of their vote. Where a
// barrier is missing, what the threads of the first warp write next is then not there for the others, as on a GPU.
void Core::release_barrier() {
  if (profile::on) profile::met_at_barrier();
  if (sanitize::on) sanitize::release_barrier(alive_);
  outcome_ = outcome(voters_);
  votes_ = voters_ = waiting_ = ready_head_ = 0;
  const auto release = [&](unsigned i) {
    if (!threads_[i].at_barrier) return;
    threads_[i].at_barrier = false;
    threads_[i].state->answer = outcome_;
    push_ready(i);
  };
  const auto count = static_cast<unsigned>(threads_.size());
  if (sanitize::on)
    for (unsigned place = 0; place < count; ++place) release(sanitize::nth_thread(place));
  else
    for (unsigned warp = (count - 1) / kWarpSize + 1; warp-- > 0;)
      for (unsigned i = warp * kWarpSize; i < std::min(count, (warp + 1) * kWarpSize); ++i) release(i);
  lockstep_ = !sanitize::on;
}

State Core::wait_at_barrier(bool vote, State here) {
  Thread& thread = suspended(here);
  if (sanitize::on) sanitize::arrive(index_of(thread), caller_of(here), true);
  ++waiting_;
  ++voters_;
  votes_ += vote;
  thread.at_barrier = true;
  if (waiting_ == alive_) release_barrier();
  return next();
}

// Lets the running thread wait at a barrier, in lockstep. Threads that leave a barrier together usually arrive together
// at the next barrier. While they arrive in the order in which they left, the arrivals need no records: the ring of
// ready threads stays as it is, and its head moves from one thread to the next.
inline State Core::arrive_in_lockstep(bool vote, State here) {
  votes_ += vote;
  running_->state = here;
  if (++ready_head_ == ready_count_) {
    if (profile::on) profile::met_at_barrier();
    outcome_ = outcome(ready_count_);
    votes_ = ready_head_ = 0;
  }
  running_ = &threads_[ready_[ready_head_]];
  threadIdx = running_->at;
  running_->state->answer = outcome_;
  return running_->state;
}

// Ends the lockstep, because the running thread does something else. The threads before it in the ring wait at the
// barrier. The threads behind it can run; they have not continued since the last barrier, so they get its outcome here.
void Core::leave_lockstep() {
  lockstep_ = false;
  for (unsigned place = ready_head_ + 1; place < ready_count_; ++place) threads_[ready_[place]].state->answer = outcome_;
  waiting_ = voters_ = ready_head_;
  for (unsigned place = 0; place < ready_head_; ++place) threads_[ready_[place]].at_barrier = true;
  ready_count_ -= ready_head_;
  pop_ready();
}

namespace {
bool same(const uint3& a, const uint3& b) { return a.x == b.x && a.y == b.y && a.z == b.z; }
}  // namespace

void Core::tick(std::uintptr_t at) {
  if (!launch_ || !alive_ || at < library_.low || at >= library_.high) return;  // else this code may not be interrupted
  const bool long_running = same(threadIdx, ticked_thread_) && same(blockIdx, ticked_block_);
  ticked_thread_ = threadIdx, ticked_block_ = blockIdx;
  if (!long_running) return;
  if (!interrupted_) TimeSlices::shorten();
  if (++interrupted_ % (alive_ + 1) == 0 && !sanitize::on && !launch_->cooperative) {
    // All threads of the block had a turn and seem to wait, so they may wait for another block.
    if (group_) run_more_blocks(0, 0);
    else if (run_more_blocks(number_ + 1, end_)) end_ = number_ + 1;
  }
  const bool own = carry;
  yield();
  carry = own;
}

std::string Core::name(unsigned index) const {
  char text[160];
  const dim3& b = launch_->block;
  std::snprintf(text, sizeof text, "thread (%u, %u, %u) of block (%u, %u, %u)", index % b.x, index / b.x % b.y, index / b.x / b.y,
                blockIdx.x, blockIdx.y, blockIdx.z);
  return text;
}

// Reports that no thread of the block can run and at least one waits. A GPU would hang, or continue with wrong values.
void Core::report_deadlock() {
  unsigned blocked = 0;
  while (blocked + 1 < threads_.size() && !threads_[blocked].at_barrier) ++blocked;
  const auto parked = std::find_if(threads_.begin(), threads_.end(), [](const Thread& each) { return each.waits; });
  if (parked != threads_.end()) {
    set_fault(name(index_of(*parked)) + " waits at " + text_of(parked->waits->place) + " " + parked->waits->text());
    if (sanitize::on) sanitize::stuck(index_of(*parked), parked->waits->place, parked->waits->text());
    return drop_threads();
  }
  if (waiting_) {
    set_fault(name(blocked) + " waits at a barrier that " + std::to_string(alive_ - waiting_) + " threads of its block never reach");
  } else {
    for (blocked = 0; !(warps_[blocked / kWarpSize].alive >> blocked % kWarpSize & 1);) ++blocked;
    set_fault(name(blocked) + " waits in a warp operation for lanes that never reach it");
  }
  if (sanitize::on) sanitize::never_reached(blocked, waiting_ > 0);
  drop_threads();
}

State Core::abandon() {
  self();  // ends a row or the lockstep
  abandoned_ = true;
  return main_;
}

// Drops all threads of the block that wait, and copies that have not been made: these may be what the fault is about.
// The threads' stacks hold threads that will never continue.
void Core::drop_threads() {
  engine_->work.clear();
  for (Thread& thread : threads_) thread.at_barrier = thread.at_grid = false, thread.waits = nullptr, thread.state = nullptr;
  parked_ = at_grid_ = ready_count_ = 0;
  fibers_.clear();
  idle_.clear();
  if (abandoned_) alive_ = 0;
}

// ------------------------------------------------------------------------------------- called by kernels

State at_barrier(std::uint64_t vote, std::uint64_t, State here) { return core->in_lockstep() ? core->arrive_in_lockstep(vote, here) : core->wait_at_barrier(vote, here); }
State at_grid_barrier(std::uint64_t, std::uint64_t, State here) { return core->wait_at_grid(here); }
State for_turn(std::uint64_t, std::uint64_t, State here) { return core->wait_for_turn(here); }
bool wait_until(Waiting& waiting) {
  if (waiting.holds()) return true;
  return emulator_wait(reinterpret_cast<std::uint64_t>(&waiting), 0, [](std::uint64_t what, std::uint64_t, State here) { return core->wait_until(*reinterpret_cast<Waiting*>(what), here); });
}
bool grid_is_cooperative() { return core->cooperative(); }
bool next_row() { return core->next_row(); }
void* shared_at(std::uint32_t low) { return core->shared_at(low); }
bool in_kernel() { return core && core->runs(); }
// A device function can also run on the host: in an algorithm of cub or thrust.
void fail_in_kernel(const char* what) { in_kernel() ? core->fail(what) : fail(cudaErrorLaunchFailure, what); }
void fail_at(SourcePlace place, const std::string& what) {
  if (sanitize::on && in_kernel()) sanitize::failed(place, what);
  fail_in_kernel((text_of(place) + ": " + what).c_str());
}
namespace {
std::mutex lack_mutex;
std::string reached;  // a sentence on the first construct that this process has reached and that the emulator cannot run
void keep_lack(const std::string& sentence) {
  std::lock_guard lock(lack_mutex);
  if (reached.empty()) reached = sentence;
}
std::string lacking(const std::string& construct, const char* file, int line) {
  return std::string(file) + ":" + std::to_string(line) + ": the emulation cannot run " + construct + ".";
}
// Ends the running block by an error of the running thread.
[[noreturn]] void end_block(const char* what, int error) {
  core->fail(what, error);
  emulator_wait(0, 0, [](std::uint64_t, std::uint64_t, State) { return core->abandon(); });
  __builtin_unreachable();
}
constexpr char kLacks[] = "the emulation cannot run this";
}  // namespace
void lack_in_kernel(const std::string& construct, const char* file, int line) {
  core->fail(kLacks, cudaErrorNotSupported);
  keep_lack(lacking(construct, file, line));
}
void lack_in_launch(const std::string& construct, const char* file, int line) {
  set_fault(kLacks, cudaErrorNotSupported);
  keep_lack(lacking(construct, file, line));
}
void lack(const char* file, int line, const char* construct) {
  lack(("emulator_lack " + lacking(construct, file, line)).c_str());
}
void lack(const char* sentence) {
  const std::string text = sentence + std::strlen("emulator_lack ");
  keep_lack(text);
  if (!in_kernel()) {
    fail(cudaErrorNotSupported, text.c_str());  // so that a program that catches the exception does not go on
    throw std::runtime_error(text);
  }
  end_block(text.c_str(), cudaErrorNotSupported);
}
void trap(const char* what, int error, const void* caller) {
  if (sanitize::on) sanitize::trapped(what, caller);
  end_block(what, error);
}
void reads_absent_lane(unsigned lane) {
  if (sanitize::on) sanitize::absent_lane(lane);
}
bool is_shared(const void* address) { return core && core->holds(address); }
bool is_local(const void* address) { return core && core->is_on_stack(address); }

void refuse_block(long long most) { core->refuse_block(most); }
bool lacks_cluster(dim3 cluster) { return core->lacks_cluster(cluster); }

void before_atomic(Update update) {
  thread_local unsigned attempts = 0;
  if (++attempts % 1024 == 0 && in_kernel()) yield();
  if (profile::on) profile::begins_update(update);
}

}  // namespace emulator

// Called by the worker process. Returns what a candidate has reached and the emulator cannot run, with its place, or an
// empty text.
extern "C" const char* emulator_lack() {
  static thread_local std::string text;
  std::lock_guard lock(emulator::lack_mutex);
  text = emulator::reached;
  return text.c_str();
}
