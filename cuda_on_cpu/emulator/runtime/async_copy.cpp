// The queue of pending asynchronous copies of each thread, in batches, and the copies that are bound to a barrier. A copy
// is made when its thread waits for it, or when its barrier opens, so a kernel that does not wait reads the old contents.
#include "emulator/async_copy.h"

#include <cstring>

#include "emulator/mbarrier.h"
#include "emulator/profile.h"
#include "emulator/sanitize.h"
#include "pending.h"

namespace emulator {

void make(const Batch& batch) {
  for (const Copy& copy : batch) {
    std::memcpy(copy.to, copy.from, copy.bytes - copy.zeros);
    std::memset(static_cast<char*>(copy.to) + copy.bytes - copy.zeros, 0, copy.zeros);
  }
}

namespace {
Queue& mine() { return core->pending().queue(thread_index()); }

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

void async_copy_before(const void* barrier, void* to, const void* from, std::size_t bytes) {
  Batch& batch = core->pending().bound[barrier];
  batch.push_back({to, from, bytes, 0});
  report(batch.back(), __builtin_return_address(0));
}

void make_copies_of(const void* barrier) {
  auto& bound = core->pending().bound;
  const auto found = bound.find(barrier);
  if (found == bound.end()) return;
  make(found->second);
  bound.erase(found);
}

Batch unfinished_copies() {
  Queue& queue = mine();
  Batch all;
  for (const Batch& batch : queue.committed) all.insert(all.end(), batch.begin(), batch.end());
  all.insert(all.end(), queue.open.begin(), queue.open.end());
  return all;
}

unsigned arrive(ArrivalBarrier& barrier, int arrivals) {
  if (sanitize::on) sanitize::gave(&barrier);
  const unsigned phase = barrier.phase;
  barrier.left -= arrivals;
  if (barrier.left > 0) return phase;
  make_copies_of(&barrier);
  barrier.left = barrier.expected;
  ++barrier.phase;
  if (sanitize::on) sanitize::order_blocks();
  return phase;
}

void meet_at_barrier(unsigned number, unsigned threads, bool waits) {
  ArrivalBarrier& barrier = core->pending().numbered[number];
  if (barrier.left == barrier.expected) barrier.left = barrier.expected = static_cast<int>(threads);
  const unsigned phase = arrive(barrier, 1);
  while (waits && barrier.phase == phase) yield();
  if (waits && sanitize::on) sanitize::took(&barrier);
}

unsigned phase_of(const ArrivalBarrier& barrier) {
  if (sanitize::on) sanitize::took(&barrier);
  return barrier.phase;
}

}  // namespace emulator
