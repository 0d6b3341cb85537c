// Runs a launch: the cores take its blocks, a few at a time.
#include "emulator/scheduler.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "core.h"
#include "emulator/memory.h"
#include "emulator/profile.h"
#include "emulator/sanitize.h"
#include "time_slices.h"
#include "traps.h"

#include <unistd.h>

namespace emulator {
namespace {

constexpr unsigned kMostCores = 16;
constexpr std::uint64_t kMostSkipped = 10'000;
constexpr unsigned kThinned = 64;
// How many blocks run at once at most, where blocks wait for each other. An H100 has room for 132 blocks of any size.
constexpr unsigned kMostHelpers = 131;

std::atomic<bool> skipping{false}, thinning{false}, dry{false};
std::atomic<std::uint64_t> skipped{0};

std::mutex fault_mutex;
std::string fault_text;
int fault_error = cudaErrorLaunchFailure;
dim3 wanted_cluster;

// The cores. Each is an OS thread. They start at the first launch, because a fork would not copy these threads.
class Cores {
 public:
  bool run(const Launch& launch) {
    std::lock_guard one_launch(launching_);
    if (profile::on) profile::launched(launch);
    {
      std::lock_guard lock(fault_mutex);
      fault_text.clear();
      wanted_cluster = dim3();
    }
    if (sanitize::on) sanitize::begin_launch(launch);
    run_blocks(launch);
    if (has_clusters(wanted_cluster)) run_as_clusters(launch);
    if (sanitize::on) sanitize::end_launch();
    return !fault_set();
  }

  // Called while a block of the launch waits. Starts an OS thread that runs the blocks from `first` to `end`, and then
  // blocks that no core has taken. Returns false if it cannot, or if there are none.
  bool help(std::uint64_t first, std::uint64_t end) {
    std::lock_guard lock(mutex_);
    if (helpers_ == kMostHelpers || (first >= end && taken_ >= blocks_)) return false;
    try {
      std::thread([this, first, end] {
        work(*launch_, first, end);
        std::lock_guard lock(mutex_);
        if (!--busy_) idle_.notify_one();
      }).detach();
    } catch (const std::system_error&) {
      return false;
    }
    ++helpers_;
    ++busy_;
    return true;
  }

 private:
  static bool has_clusters(const dim3& size) { return volume(size) > 1; }

  // Runs the launch once more, because its kernel has the size of a cluster as an attribute.
  void run_as_clusters(Launch launch) {
    launch.cluster = wanted_cluster;
    if (const char* wrong = wrong_cluster(launch)) return set_fault(wrong, cudaErrorInvalidClusterSize);
    if (sanitize::on) sanitize::end_launch(), sanitize::begin_launch(launch);
    run_blocks(launch);
  }

  void run_blocks(const Launch& launch) {
    blocks_ = has_clusters(launch.cluster) ? clusters_of(launch) : volume(launch.grid);
    chunk_ = std::max<std::uint64_t>(1, blocks_ / (count() * 8));
    taken_ = 0;
    helpers_ = 0;
    launch_ = &launch;
    if (launch.cooperative) {
      run_grid(launch);
    } else if (blocks_ > 1 && count() > 1) {
      start();
      {
        std::lock_guard lock(mutex_);
        ++generation_;
        busy_ = static_cast<unsigned>(threads_.size());
      }
      wake_.notify_all();
      work(launch);
    } else {
      work(launch);
    }
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return !busy_; });
  }

  static unsigned count() {
    static const unsigned cores = [] {
      cpu_set_t set;
      int usable = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
      return std::min(kMostCores, static_cast<unsigned>(std::max(1, usable)));
    }();
    return sanitize::on ? 1 : cores;
  }

  // Runs clusters; or the blocks from `first` to `end`, and then blocks that no core has taken.
  void work(const Launch& launch, std::uint64_t first = 0, std::uint64_t end = 0) {
    if (has_clusters(launch.cluster)) {
      const TimeSlices slices;
      return run_clusters(launch, [this](std::uint64_t& cluster) {
        if ((cluster = taken_.fetch_add(1)) >= blocks_) return false;
        if (sanitize::on) cluster = sanitize::nth_block(cluster);
        return true;
      });
    }
    static thread_local std::unique_ptr<Core> mine;
    static thread_local const FaultStack faults;
    if (!mine) mine = std::make_unique<Core>();
    core = mine.get();
    mine->begin_launch(launch);
    const TimeSlices slices;
    if (first < end) mine->run_blocks(first, end);
    while ((first = taken_.fetch_add(chunk_)) < blocks_) mine->run_blocks(first, std::min(first + chunk_, blocks_));
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
  std::uint64_t generation_ = 0, blocks_ = 0, chunk_ = 1;  // `blocks_` counts clusters if there are any
  std::atomic<std::uint64_t> taken_{0};
  unsigned busy_ = 0, helpers_ = 0;
};

Cores& cores() {
  static auto* all = new Cores;  // never destroyed, because its threads use it until the process ends
  return *all;
}

}  // namespace

std::atomic<std::uint64_t> launches{0}, launched_threads{0};

bool skips_kernels() {
  // Host code that waits for a result of its kernels would launch them without end.
  if (dry && ++skipped > kMostSkipped) end_dry_run();
  if (skipping && ++skipped > kMostSkipped) throw std::runtime_error("too many launches while kernels are skipped");
  return skipping || dry;
}

bool is_dry() { return dry; }
void end_dry_run() { _exit(0); }

bool run(const Launch& launch) {
  if (skips_kernels()) return true;
  if (!thinning) return cores().run(launch);
  Launch thin = launch;
  thin.grid.x = (thin.grid.x + kThinned - 1) / kThinned;
  return cores().run(thin);
}

bool run_more_blocks(std::uint64_t first, std::uint64_t end) { return cores().help(first, end); }

void set_fault(const std::string& text, int error) {
  std::lock_guard lock(fault_mutex);
  if (!fault_text.empty()) return;
  fault_text = text;
  fault_error = error;
}
bool fault_set() {
  std::lock_guard lock(fault_mutex);
  return !fault_text.empty();
}
void want_cluster(dim3 cluster) {
  std::lock_guard lock(fault_mutex);
  wanted_cluster = cluster;
}
const char* last_fault() { return fault_text.c_str(); }
int last_fault_error() { return fault_error; }

}  // namespace emulator

// Called by the worker process. Returns the number of launches so far in this process.
extern "C" std::uint64_t emulator_launches() { return emulator::launches; }

// Called by the worker process. If `skip` is true, later launches succeed and run nothing.
extern "C" void emulator_skip_kernels(bool skip) {
  emulator::skipped = 0;
  emulator::skipping = skip;
}

// Called by the worker process. From now on, until the process ends, the code of the host runs, and device memory that
// is allocated has addresses without bytes. Launches are checked against the device's limits, and run nothing. torch's
// operators compute shapes only. Code of the host that needs a value from device memory ends the process.
extern "C" void emulator_begin_dry_run() { emulator::dry = true; }

// Called by the worker process. Later launches run a 64th of their blocks in x, rounded up, as if they had asked for
// these alone.
extern "C" void emulator_thin_grids() { emulator::thinning = true; }

// Called by the worker process. Returns the number of threads of all launches so far that were not refused.
extern "C" std::uint64_t emulator_launched_threads() { return emulator::launched_threads; }
