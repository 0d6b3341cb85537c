// One block at a time on each core: its threads run in index order on as few stacks as they need. A kernel
// without barriers needs one; a thread that waits leaves its stack as it is and the next gets another.
#include "emulator/scheduler.h"

#include <link.h>

#include <algorithm>
#include <atomic>
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

constinit thread_local uint3 threadIdx{}, blockIdx{};
constinit thread_local dim3 blockDim, gridDim;

namespace emulator {

constinit thread_local char* dynamic_shared = nullptr;

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
  std::uint32_t alive = 0;
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
  bool at_barrier = false;
};

class Core {
 public:
  void begin_launch(const Launch& launch);
  void end_launch();
  void run_block(std::uint64_t number);
  bool holds(const void* address) const;
  Votes barrier(bool vote);
  Meeting meet(std::uint32_t mask, std::uint64_t value);
  unsigned lane() const { return running_->index % kWarpSize; }
  std::uint32_t active() const { return warps_[running_->index / kWarpSize].alive; }
  [[noreturn]] void fiber_main(Fiber* fiber);

 private:
  void begin_block(std::uint64_t number);
  void poison();
  void place(unsigned index);
  void wait();
  void go(Context& from);
  void finish(Thread& thread);
  void release_barrier();
  void release(Gathering& gathering, unsigned first);
  void stuck();
  std::string name(unsigned index) const;

  const Launch* launch_ = nullptr;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<unsigned> ready_;  // a ring: every thread is in it at most once
  unsigned ready_head_ = 0, ready_count_ = 0;
  unsigned next_ = 0, alive_ = 0, waiting_ = 0;
  unsigned votes_ = 0, voters_ = 0;
  Votes outcome_{};
  Thread* running_ = nullptr;
  Context main_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  std::vector<char> dynamic_, kept_;
  char* static_ = nullptr;
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
  const auto start = reinterpret_cast<std::uintptr_t>(dynamic_.data());
  dynamic_shared = reinterpret_cast<char*>((start + kAlignment - 1) / kAlignment * kAlignment);
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
  for (Thread& thread : threads_) thread.at_barrier = false;  // the last block may have been stuck
  for (unsigned w = 0; w < warps_.size(); ++w) {
    unsigned lanes = std::min(kWarpSize, n - w * kWarpSize);
    warps_[w].alive = lanes == kWarpSize ? ~0u : (1u << lanes) - 1;
    warps_[w].gatherings.clear();
  }
  ready_head_ = ready_count_ = next_ = waiting_ = votes_ = voters_ = 0;
  alive_ = n;
  blockIdx = {static_cast<unsigned>(number % launch.grid.x), static_cast<unsigned>(number / launch.grid.x % launch.grid.y),
                static_cast<unsigned>(number / launch.grid.x / launch.grid.y)};
  poison();
}

void Core::run_block(std::uint64_t number) {
  begin_block(number);
  go(main_);
  if (alive_) stuck();
}

void Core::place(unsigned index) {
  running_ = &threads_[index];
  threadIdx = running_->at;
}

// Goes to whoever can run: a thread that was woken, else one not yet begun, else back to the core.
void Core::go(Context& from) {
  if (ready_count_) {
    unsigned index = ready_[ready_head_];
    if (++ready_head_ == ready_.size()) ready_head_ = 0;
    --ready_count_;
    place(index);
    Context::swap(from, running_->fiber->context);
  } else if (next_ < threads_.size()) {
    if (idle_.empty()) idle_.push_back(fibers_.emplace_back(std::make_unique<Fiber>(this)).get());
    Fiber* fiber = idle_.back();
    idle_.pop_back();
    Context::swap(from, fiber->context);
  } else if (&from != &main_) {
    Context::swap(from, main_);
  }
}

void Core::fiber_main(Fiber* fiber) {
  for (;;) {
    while (next_ < threads_.size()) {
      place(next_++);
      Thread& thread = *running_;
      thread.fiber = fiber;
      launch_->body(launch_->arguments);
      finish(thread);
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
  outcome_ = {votes_, votes_ == voters_, votes_ > 0};
  votes_ = voters_ = waiting_ = 0;
  for (unsigned i = 0; i < threads_.size(); ++i) {
    if (!threads_[i].at_barrier) continue;
    threads_[i].at_barrier = false;
    push_ready(i);
  }
}

Votes Core::barrier(bool vote) {
  ++waiting_;
  ++voters_;
  votes_ += vote;
  running_->at_barrier = true;
  if (waiting_ == alive_) release_barrier();
  wait();
  return outcome_;
}

void Core::release(Gathering& gathering, unsigned first) {
  std::memcpy(gathering.out, gathering.in, sizeof gathering.in);
  gathering.took_part = gathering.arrived;
  if (profile::on) profile::met_in_warp();
  gathering.arrived = 0;
  for (unsigned i = 0; i < kWarpSize; ++i)
    if (gathering.took_part >> i & 1) push_ready(first + i);
}

Meeting Core::meet(std::uint32_t mask, std::uint64_t value) {
  const unsigned index = running_->index, which = index / kWarpSize, bit = index % kWarpSize;
  if (!(mask >> bit & 1)) {
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
    if (blocks_ > 1 && count() > 1) {
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
    return cores;
  }

  void work(const Launch& launch) {
    static thread_local std::unique_ptr<Core> mine;
    if (!mine) mine = std::make_unique<Core>();
    core = mine.get();
    mine->begin_launch(launch);
    for (std::uint64_t first; (first = taken_.fetch_add(chunk_)) < blocks_;)
      for (std::uint64_t number = first; number < std::min(first + chunk_, blocks_); ++number) mine->run_block(number);
    mine->end_launch();
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
Votes barrier(bool vote) { return core->barrier(vote); }
Meeting meet(std::uint32_t mask, std::uint64_t value) { return core->meet(mask, value); }
unsigned lane() { return core->lane(); }
std::uint32_t active_lanes() { return core->active(); }

}  // namespace emulator

// For the process that hosts the candidate.
extern "C" std::uint64_t emulator_launches() { return emulator::launches; }
