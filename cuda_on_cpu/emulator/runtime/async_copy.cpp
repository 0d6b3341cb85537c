// The queue of pending asynchronous copies of each thread, in batches, and the copies that are bound to a barrier. A copy
// is made when its thread waits for it, or when its barrier opens, so a kernel that does not wait reads the old contents.
#include "emulator/async_copy.h"

#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include "emulator/block_barrier.h"
#include "emulator/profile.h"
#include "emulator/sanitize.h"
#include "emulator/scheduler.h"

namespace emulator {
namespace {

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes, zeros;
};
using Batch = std::vector<Copy>;

struct Queue {
  Batch open;
  std::deque<Batch> committed;
};

struct Block {
  std::uint64_t launch = 0;
  uint3 index{};
  std::vector<Queue> threads;
  std::map<const ArrivalBarrier*, Batch> bound;
  std::map<unsigned, ArrivalBarrier> numbered;  // the barriers of bar.sync and bar.arrive
};

void make(const Batch& batch) {
  for (const Copy& copy : batch) {
    std::memcpy(copy.to, copy.from, copy.bytes - copy.zeros);
    std::memset(static_cast<char*>(copy.to) + copy.bytes - copy.zeros, 0, copy.zeros);
  }
}

// Returns the pending copies of the running block. Copies that an earlier block left are dropped first, because that
// block's shared memory is gone.
Block& running_block() {
  static thread_local Block block;
  const bool same = block.launch == launches && block.index.x == blockIdx.x && block.index.y == blockIdx.y && block.index.z == blockIdx.z;
  if (!same) {
    block.launch = launches;
    block.index = blockIdx;
    block.threads.assign(blockDim.x * blockDim.y * blockDim.z, {});
    block.bound.clear();
    block.numbered.clear();
  }
  return block;
}

Queue& mine() { return running_block().threads[threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)]; }

void report(const Copy& copy, const void* site) {
  if (!profile::on) return;
  if (copy.bytes > copy.zeros) profile::touched(copy.from, copy.bytes - copy.zeros, profile::Access::kLoad, site);
  profile::touched(copy.to, copy.bytes, profile::Access::kCopy, site);
}

}  // namespace

void async_copy(void* to, const void* from, std::size_t bytes, std::size_t zeros) {
  mine().open.push_back({to, from, bytes, zeros});
  report(mine().open.back(), __builtin_return_address(0));
}

void async_commit() {
  Queue& queue = mine();
  queue.committed.push_back(std::move(queue.open));
  queue.open.clear();
}

void async_wait(unsigned newest_left) {
  Queue& queue = mine();
  while (queue.committed.size() > newest_left) {
    make(queue.committed.front());
    queue.committed.pop_front();
  }
}

void async_copy(ArrivalBarrier& barrier, void* to, const void* from, std::size_t bytes) {
  Batch& batch = running_block().bound[&barrier];
  batch.push_back({to, from, bytes, 0});
  report(batch.back(), __builtin_return_address(0));
}

unsigned arrive(ArrivalBarrier& barrier, int arrivals) {
  const unsigned phase = barrier.phase;
  barrier.left -= arrivals;
  if (barrier.left > 0) return phase;
  Batch& copies = running_block().bound[&barrier];
  make(copies);
  copies.clear();
  barrier.left = barrier.expected;
  ++barrier.phase;
  if (sanitize::on) sanitize::order_block();
  return phase;
}

void meet_at_barrier(unsigned number, unsigned threads, bool waits) {
  ArrivalBarrier& barrier = running_block().numbered[number];
  if (barrier.left == barrier.expected) barrier.left = barrier.expected = static_cast<int>(threads);
  const unsigned phase = arrive(barrier, 1);
  while (waits && barrier.phase == phase) yield();
}

unsigned phase_of(const ArrivalBarrier& barrier) { return barrier.phase; }

}  // namespace emulator
