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
};

struct Pending {
  explicit Pending(std::size_t threads) : queues(threads), bulk(threads), cluster_phases(threads), warpgroups(threads / kWarpgroup + 1) {}
  std::vector<Queue> queues;
  std::vector<BulkGroups> bulk;
  std::vector<std::uint64_t> cluster_phases;  // in which phase of the cluster's barrier each thread arrived
  std::map<const void*, Batch> bound;           // copies by the barrier that waits for them
  std::map<unsigned, ArrivalBarrier> numbered;  // the barriers of bar.sync and bar.arrive
  std::vector<Warpgroup> warpgroups;
};

inline unsigned thread_index() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
void make(const Batch& batch);

}  // namespace emulator
