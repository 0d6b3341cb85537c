// Each thread's pending copies, in batches. They are made when waited for: a kernel that forgets to wait sees what
// was there before.
#include "emulator/async_copy.h"

#include <cstring>
#include <deque>
#include <vector>

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
};

void make(const Batch& batch) {
  for (const Copy& copy : batch) {
    std::memcpy(copy.to, copy.from, copy.bytes - copy.zeros);
    std::memset(static_cast<char*>(copy.to) + copy.bytes - copy.zeros, 0, copy.zeros);
  }
}

// The calling thread's queue; what another block left in it is gone, as that block's shared memory is.
Queue& mine() {
  static thread_local Block block;
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const bool same = block.launch == launches && block.index.x == blockIdx.x && block.index.y == blockIdx.y && block.index.z == blockIdx.z;
  if (!same) {
    block.launch = launches;
    block.index = blockIdx;
    block.threads.assign(blockDim.x * blockDim.y * blockDim.z, {});
  }
  return block.threads[thread];
}

}  // namespace

void async_copy(void* to, const void* from, std::size_t bytes, std::size_t zeros) { mine().open.push_back({to, from, bytes, zeros}); }

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

}  // namespace emulator
