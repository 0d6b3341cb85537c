// One block at a time on each core: its threads run in index order on as few stacks as they need. A kernel
// without barriers needs one; a thread that waits leaves its stack as it is and the next gets another.
#include "emulator/scheduler.h"

#include <link.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "emulator/context.h"
#include "emulator/profile.h"
#include "emulator/sanitize.h"

constinit thread_local uint3 threadIdx{}, blockIdx{};
constinit thread_local dim3 blockDim, gridDim;

namespace emulator {

constinit thread_local char* dynamic_shared = nullptr;
constinit thread_local bool in_a_row = false;

namespace {

constexpr std::size_t kStackBytes = 256 * 1024;
constexpr unsigned kMostCores = 16;
constexpr std::size_t kAlignment = 1024;  // of shared memory, the strictest any instruction asks for

std::mutex fault_mutex;
std::string fault_text;

void set_fault(const std::string& text) {
  std::lock_guard lock(fault_mutex);
  if (fault_text.empty()) fault_text = text;
}

struct Gathering {  // a rendezvous of the lanes of one mask
  std::uint32_t mask = 0, arrived = 0, took_part = 0;
  std::uint64_t in[kWarpSize], out[kWarpSize];
};

struct Warp {
  std::uint32_t alive = 0, converging = 0, converged = 0;
  const void* site[kWarpSize];
  std::vector<Gathering> gatherings;
};

class Core;

struct Fiber {
  Core* core;
  Context context;
  explicit Fiber(Core* core);
};

struct Thread {
  uint3 at;
  unsigned index;
  Fiber* fiber = nullptr;
  bool at_barrier = false, at_grid = false;
};

class Core {
 public:
  void begin_launch(const Launch& launch);
  void end_launch();
  void run_block(std::uint64_t number);
  bool holds(const void* address) const;
  void begin_block(std::uint64_t number);
  void enter();
  void leave();
  bool advance();
  void release_grid();
  void grid_barrier();
  bool cooperative() const { return launch_->cooperative; }
  Votes barrier(bool vote, const void* caller);
  Meeting meet(std::uint32_t mask, std::uint64_t value, const void* caller);
  bool next_row();
  void yield();
  std::uint32_t converged(const void* site);
  void fail(const char* what) { set_fault(name(self().index) + ": " + what); }
  [[noreturn]] void fiber_main(Fiber* fiber);

 private:
  Thread& self() {
    if (in_a_row) keep_books();
    return *running_;
  }
  void keep_books();
  char* dynamic_start();
  void poison();
  void place(unsigned index);
  void wait();
  void go(Context& from);
  void finish(Thread& thread);
  void begin_next(Context& from);
  void release_barrier();
  void release_converged();
  void release(Gathering& gathering, unsigned first);
  void stuck();
  std::string name(unsigned index) const;

  const Launch* launch_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<unsigned> ready_;  // a ring: every thread is in it at most once
  unsigned ready_head_ = 0, ready_count_ = 0;
  unsigned next_ = 0, alive_ = 0, waiting_ = 0, converging_ = 0;
  unsigned votes_ = 0, voters_ = 0, at_grid_ = 0;
  Votes outcome_{};
  Thread* running_ = nullptr;
  Context main_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  std::vector<char> dynamic_, kept_, shared_;
  uint3 block_{};
  bool in_a_row_ = false;
  char *static_ = nullptr, *sanitized_ = nullptr;
  std::size_t static_bytes_ = 0;

  void push_ready(unsigned index) {
    unsigned slot = ready_head_ + ready_count_++;
    if (slot >= ready_.size()) slot -= static_cast<unsigned>(ready_.size());
    ready_[slot] = index;
  }
};

thread_local Core* core __attribute__((tls_model("initial-exec"))) = nullptr;

Fiber::Fiber(Core* core)
    : core(core), context(kStackBytes, [](void* self) { static_cast<Fiber*>(self)->core->fiber_main(static_cast<Fiber*>(self)); }, this) {}

// The thread-local memory of the object that a kernel lives in is the kernel's static shared memory.
struct SharedMemory {
  const void* code;
  char* data = nullptr;
  std::size_t bytes = 0;
};

extern "C" void* __tls_get_addr(void* module_and_offset);

int find_shared_memory(dl_phdr_info* info, std::size_t, void* argument) {
  auto* wanted = static_cast<SharedMemory*>(argument);
  const auto address = reinterpret_cast<std::uintptr_t>(wanted->code);
  bool inside = false;
  std::size_t bytes = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    const auto low = info->dlpi_addr + segment.p_vaddr;
    inside |= segment.p_type == PT_LOAD && address >= low && address < low + segment.p_memsz;
    if (segment.p_type == PT_TLS) bytes = segment.p_memsz;
  }
  if (inside && bytes) {
    std::size_t module_and_offset[2] = {info->dlpi_tls_modid, 0};
    *wanted = {wanted->code, static_cast<char*>(__tls_get_addr(module_and_offset)), bytes};
  }
  return inside;
}

void Core::begin_launch(const Launch& launch) {
  launch_ = &launch;
  SharedMemory shared{reinterpret_cast<const void*>(launch.body)};
  dl_iterate_phdr(&find_shared_memory, &shared);
  static_ = shared.data;
  static_bytes_ = shared.bytes;
  kept_.assign(static_, static_ + static_bytes_);
  const dim3& b = launch.block;
  threads_.resize(b.x * b.y * b.z);
  ready_.resize(threads_.size());
  warps_.resize((threads_.size() + kWarpSize - 1) / kWarpSize);
  for (unsigned i = 0; i < threads_.size(); ++i) threads_[i] = {{i % b.x, i / b.x % b.y, i / b.x / b.y}, i};
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
  const Launch& launch = *launch_;
  const auto n = static_cast<unsigned>(threads_.size());
  for (Thread& thread : threads_) thread.at_barrier = thread.at_grid = false;  // the last block may have been stuck
  for (unsigned w = 0; w < warps_.size(); ++w) {
    unsigned lanes = std::min(kWarpSize, n - w * kWarpSize);
    warps_[w].alive = lanes == kWarpSize ? ~0u : (1u << lanes) - 1;
    warps_[w].converging = 0;
    warps_[w].gatherings.clear();
  }
  ready_head_ = ready_count_ = next_ = waiting_ = votes_ = voters_ = at_grid_ = converging_ = 0;
  alive_ = n;
  blockIdx = {static_cast<unsigned>(number % launch.grid.x), static_cast<unsigned>(number / launch.grid.x % launch.grid.y),
                static_cast<unsigned>(number / launch.grid.x / launch.grid.y)};
  poison();
  in_a_row = !sanitize::on;
  if (sanitize::on) sanitize::begin_block(number, n);
}

void Core::run_block(std::uint64_t number) {
  begin_block(number);
  go(main_);
  if (alive_) stuck();
}

// The blocks of a cooperative launch take turns on one core: what is each block's own is put away in between.
void Core::enter() {
  core = this;
  blockIdx = block_;
  in_a_row = in_a_row_;
  dynamic_shared = dynamic_start();
  if (static_bytes_) std::memcpy(static_, shared_.data(), static_bytes_);
  if (sanitize::on) sanitize::resume_block((static_cast<std::uint64_t>(block_.z) * gridDim.y + block_.y) * gridDim.x + block_.x);
}

void Core::leave() {
  block_ = blockIdx;
  in_a_row_ = in_a_row;
  shared_.assign(static_, static_ + static_bytes_);
}

// Runs the block until it waits for the grid (true) or is done.
bool Core::advance() {
  if (!alive_) return false;
  enter();
  go(main_);
  if (alive_ && at_grid_ < alive_) stuck();
  leave();
  return alive_;
}

void Core::grid_barrier() {
  if (!launch_->cooperative) {
    set_fault(name(self().index) + " waits for the grid, but the launch is not cooperative");
    return;
  }
  ++at_grid_;
  self().at_grid = true;
  wait();
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
  in_a_row = false;
  Fiber* fiber = running_->fiber;
  const unsigned index = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  running_ = &threads_[index];
  running_->fiber = fiber;
  next_ = index + 1;
  alive_ -= index;
  for (unsigned i = 0; i < index; ++i) warps_[i / kWarpSize].alive &= ~(1u << i % kWarpSize);
}

void Core::place(unsigned index) {
  running_ = &threads_[index];
  threadIdx = running_->at;
  if (sanitize::on) sanitize::switch_to(index);
}

// Goes to whoever can run: a thread that was woken, else one not yet begun, else back to the core.
void Core::go(Context& from) {
  if (converging_ && !ready_count_ && next_ == threads_.size()) release_converged();
  if (ready_count_) {
    unsigned index = ready_[ready_head_];
    if (++ready_head_ == ready_.size()) ready_head_ = 0;
    --ready_count_;
    place(index);
    Context::swap(from, running_->fiber->context);
  } else if (next_ < threads_.size()) {
    begin_next(from);
  } else if (&from != &main_) {
    Context::swap(from, main_);
  }
}

void Core::begin_next(Context& from) {
  if (idle_.empty()) idle_.push_back(fibers_.emplace_back(std::make_unique<Fiber>(this)).get());
  Fiber* fiber = idle_.back();
  idle_.pop_back();
  Context::swap(from, fiber->context);
}

void Core::yield() {
  Thread& thread = self();
  push_ready(thread.index);
  if (next_ < threads_.size()) {
    begin_next(thread.fiber->context);
  } else {
    go(thread.fiber->context);
  }
}

std::uint32_t Core::converged(const void* site) {
  const unsigned index = self().index, bit = index % kWarpSize;
  Warp& warp = warps_[index / kWarpSize];
  warp.site[bit] = site;
  warp.converging |= 1u << bit;
  ++converging_;
  wait();
  return warps_[index / kWarpSize].converged;
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

void Core::fiber_main(Fiber* fiber) {
  for (;;) {
    while (next_ < threads_.size()) {
      place(sanitize::on ? sanitize::nth_thread(next_++) : next_++);
      running_->fiber = fiber;
      sanitize::on ? sanitize::run_thread(launch_->body, launch_->arguments) : launch_->body(launch_->arguments);
      if (in_a_row) {
        next_ = static_cast<unsigned>(threads_.size());
        alive_ = 0;
      } else {
        finish(*running_);
      }
    }
    idle_.push_back(fiber);
    go(fiber->context);
  }
}

void Core::wait() {
  Thread* self = running_;
  go(self->fiber->context);
}

void Core::finish(Thread& thread) {
  --alive_;
  Warp& warp = warps_[thread.index / kWarpSize];
  warp.alive &= ~(1u << thread.index % kWarpSize);
  for (auto& gathering : warp.gatherings)
    if (gathering.arrived && gathering.arrived == (gathering.mask & warp.alive)) release(gathering, thread.index / kWarpSize * kWarpSize);
  if (alive_ && waiting_ == alive_) release_barrier();
}

// Wakes everyone at the barrier, in index order, and remembers the vote until the next one.
void Core::release_barrier() {
  if (profile::on) profile::met_at_barrier();
  if (sanitize::on) sanitize::release_barrier(alive_);
  outcome_ = {votes_, votes_ == voters_, votes_ > 0};
  votes_ = voters_ = waiting_ = 0;
  for (unsigned place = 0; place < threads_.size(); ++place) {
    const unsigned i = sanitize::on ? sanitize::nth_thread(place) : place;
    if (!threads_[i].at_barrier) continue;
    threads_[i].at_barrier = false;
    push_ready(i);
  }
}

Votes Core::barrier(bool vote, const void* caller) {
  Thread& thread = self();
  if (sanitize::on) sanitize::arrive(thread.index, caller, true);
  ++waiting_;
  ++voters_;
  votes_ += vote;
  thread.at_barrier = true;
  if (waiting_ == alive_) release_barrier();
  wait();
  return outcome_;
}

void Core::release(Gathering& gathering, unsigned first) {
  std::memcpy(gathering.out, gathering.in, sizeof gathering.in);
  gathering.took_part = gathering.arrived;
  if (profile::on) profile::met_in_warp();
  if (sanitize::on) sanitize::release_warp(first, gathering.took_part);
  gathering.arrived = 0;
  for (unsigned i = 0; i < kWarpSize; ++i)
    if (gathering.took_part >> i & 1) push_ready(first + i);
}

Meeting Core::meet(std::uint32_t mask, std::uint64_t value, const void* caller) {
  const unsigned index = self().index, which = index / kWarpSize, bit = index % kWarpSize;
  if (sanitize::on) sanitize::arrive(index, caller, false);
  if (!(mask >> bit & 1)) {
    if (sanitize::on) sanitize::outside_mask(index);
    set_fault(name(index) + " took part in a warp operation whose mask leaves it out");
    mask |= 1u << bit;
  }
  Warp& warp = warps_[which];
  std::size_t g = 0;
  while (g < warp.gatherings.size() && warp.gatherings[g].mask != mask) ++g;
  if (g == warp.gatherings.size()) {
    warp.gatherings.reserve(kWarpSize);  // disjoint masks are at most this many; overlapping ones are a fault anyway
    warp.gatherings.emplace_back().mask = mask;
  }
  Gathering& gathering = warp.gatherings[g];
  gathering.in[bit] = value;
  gathering.arrived |= 1u << bit;
  if (gathering.arrived == (mask & warp.alive)) release(gathering, which * kWarpSize);
  wait();
  Gathering& done = warps_[which].gatherings[g];
  if (sanitize::on) sanitize::keep_quiet(warps_[which].gatherings.data(), kWarpSize * sizeof(Gathering));
  return {done.out, done.took_part};
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
  fibers_.clear();  // their stacks hold threads that will never go on
  idle_.clear();
}

// The cores, each with a thread of its own, started on the first launch (so never before a fork).
class Cores {
 public:
  bool run(const Launch& launch) {
    std::lock_guard one_launch(launching_);
    if (profile::on) profile::launched(launch);
    {
      std::lock_guard lock(fault_mutex);
      fault_text.clear();
    }
    blocks_ = static_cast<std::uint64_t>(launch.grid.x) * launch.grid.y * launch.grid.z;
    chunk_ = std::max<std::uint64_t>(1, blocks_ / (count() * 8));
    taken_ = 0;
    if (sanitize::on) sanitize::begin_launch(launch);
    if (launch.cooperative) {
      work_cooperatively(launch);
    } else if (blocks_ > 1 && count() > 1) {
      start();
      {
        std::lock_guard lock(mutex_);
        launch_ = &launch;
        ++generation_;
        busy_ = static_cast<unsigned>(threads_.size());
      }
      wake_.notify_all();
      work(launch);
      std::unique_lock lock(mutex_);
      idle_.wait(lock, [&] { return !busy_; });
    } else {
      work(launch);
    }
    if (sanitize::on) sanitize::end_launch();
    std::lock_guard lock(fault_mutex);
    return fault_text.empty();
  }

 private:
  static unsigned count() {
    static const unsigned cores = [] {
      cpu_set_t set;
      int usable = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
      return std::min(kMostCores, static_cast<unsigned>(std::max(1, usable)));
    }();
    return sanitize::on ? 1 : cores;
  }

  void work(const Launch& launch) {
    static thread_local std::unique_ptr<Core> mine;
    if (!mine) mine = std::make_unique<Core>();
    core = mine.get();
    mine->begin_launch(launch);
    for (std::uint64_t first; (first = taken_.fetch_add(chunk_)) < blocks_;)
      for (std::uint64_t number = first; number < std::min(first + chunk_, blocks_) && !(sanitize::on && sanitize::given_up()); ++number)
        mine->run_block(sanitize::on ? sanitize::nth_block(number) : number);
    mine->end_launch();
  }

  void work_cooperatively(const Launch& launch) {
    std::vector<std::unique_ptr<Core>> blocks(blocks_);
    for (auto& block : blocks) (block = std::make_unique<Core>())->begin_launch(launch);
    for (std::uint64_t number = 0; number < blocks_; ++number) {
      blocks[number]->begin_block(number);
      blocks[number]->leave();
    }
    for (bool waiting = true; waiting;) {
      std::size_t arrived = 0;
      for (std::size_t i = 0; i < blocks.size(); ++i) arrived += blocks[sanitize::on ? sanitize::nth_block(i) : i]->advance();
      waiting = arrived > 0;
      if (waiting && arrived < blocks.size()) {
        set_fault(std::to_string(arrived) + " blocks wait at a barrier of the grid that " + std::to_string(blocks.size() - arrived) + " blocks never reach");
        break;
      }
      if (sanitize::on) sanitize::release_grid();
      for (auto& block : blocks) block->release_grid();
    }
    blocks[0]->end_launch();
  }

  void start() {
    while (threads_.size() + 1 < count()) {
      threads_.emplace_back([this] {
        for (std::uint64_t seen = 0;;) {
          std::unique_lock lock(mutex_);
          wake_.wait(lock, [&] { return generation_ != seen; });
          seen = generation_;
          const Launch* launch = launch_;
          lock.unlock();
          work(*launch);
          lock.lock();
          if (!--busy_) idle_.notify_one();
        }
      });
      threads_.back().detach();
    }
  }

  std::mutex launching_, mutex_;
  std::condition_variable wake_, idle_;
  std::vector<std::thread> threads_;
  const Launch* launch_ = nullptr;
  std::uint64_t generation_ = 0, blocks_ = 0, chunk_ = 1;
  std::atomic<std::uint64_t> taken_{0};
  unsigned busy_ = 0;
};

}  // namespace

std::atomic<std::uint64_t> launches{0};

bool run(const Launch& launch) {
  static auto* cores = new Cores;  // never destroyed: its threads wait on it until the process ends
  return cores->run(launch);
}

bool is_shared(const void* address) { return core && core->holds(address); }
const char* last_fault() { return fault_text.c_str(); }
Votes barrier(bool vote) { return core->barrier(vote, __builtin_return_address(0)); }
Meeting meet(std::uint32_t mask, std::uint64_t value) { return core->meet(mask, value, __builtin_return_address(0)); }
void grid_barrier() { core->grid_barrier(); }
bool grid_is_cooperative() { return core->cooperative(); }
bool next_row() { return core->next_row(); }
void fail_in_kernel(const char* what) { core->fail(what); }
void yield() { core->yield(); }
void before_atomic() {
  thread_local unsigned attempts = 0;
  if (++attempts % 1024 == 0) core->yield();
}
__attribute__((noinline)) std::uint32_t converged_lanes() { return core->converged(__builtin_return_address(0)); }

}  // namespace emulator

// For the process that hosts the candidate.
extern "C" std::uint64_t emulator_launches() { return emulator::launches; }
