// What the asynchronous instructions of a running block have begun: copies of its threads, and products of its warpgroups.
#pragma once
#include <deque>
#include <map>
#include <vector>

#include "core.h"
#include "emulator/block_barrier.h"
#include "wgmma.h"

namespace emulator {

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes, zeros;
};
using Batch = std::vector<Copy>;

struct Queue {  // of a thread's copies by cp.async
  Batch open;
  std::deque<Batch> committed;
};

struct BulkGroups {  // of a thread's bulk copies that bulk groups count
  unsigned open = 0;                // the copies that no group has
  std::deque<unsigned> unfinished;  // how many copies of each committed group have not been made, the oldest group first
  std::uint64_t finished = 0;       // how many groups left `unfinished`
  std::uint64_t committed() const { return finished + unfinished.size(); }
  void retire() {
    while (!unfinished.empty() && !unfinished.front()) unfinished.pop_front(), ++finished;
  }
};

class Pending {
 public:
  explicit Pending(std::size_t threads) : threads_(threads) {}
  Queue& queue(unsigned thread) { return of(queues_, threads_)[thread]; }
  BulkGroups& bulk(unsigned thread) { return of(bulk_, threads_)[thread]; }
  Warpgroup& warpgroup(unsigned thread) { return of(warpgroups_, threads_ / kWarpgroup + 1)[thread / kWarpgroup]; }
  // In which phase of the cluster's barrier the thread arrived.
  std::uint64_t& cluster_phase(unsigned thread) { return of(cluster_phases_, threads_)[thread]; }

  std::map<const void*, Batch> bound;           // copies by the barrier that waits for them
  std::map<unsigned, ArrivalBarrier> numbered;  // the barriers of bar.sync and bar.arrive

 private:
  // Most blocks use one kind of instruction, so the records of each kind are made at its first use.
  template <class T>
  static std::vector<T>& of(std::vector<T>& all, std::size_t count) {
    if (all.empty()) all.resize(count);
    return all;
  }
  std::size_t threads_;
  std::vector<Queue> queues_;
  std::vector<BulkGroups> bulk_;
  std::vector<std::uint64_t> cluster_phases_;
  std::vector<Warpgroup> warpgroups_;
};

inline unsigned thread_index() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
void make(const Batch& batch);
Batch unfinished_copies();  // of the running thread, by cp.async

}  // namespace emulator
