// Asynchronous copies from global to shared memory. A copy is made only when its thread waits for it, which is as late
// as cp.async allows.
#pragma once
#include <cstddef>

namespace emulator {

// Adds a copy to the thread's open batch: `bytes` bytes arrive at `to`, of which the last `zeros` are zeros instead of
// bytes of `from`.
void async_copy(void* to, const void* from, std::size_t bytes, std::size_t zeros = 0);
// Closes the open batch.
void async_commit();
// Makes the copies of all closed batches of this thread, except the newest `newest_left` batches.
void async_wait(unsigned newest_left);

}  // namespace emulator
