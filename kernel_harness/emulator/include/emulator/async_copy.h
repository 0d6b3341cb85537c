// Copies from global to shared memory that arrive when they are waited for and not before, as cp.async's may.
#pragma once
#include <cstddef>

namespace emulator {

// `bytes` from `from`, of which the last `zeros` are replaced by zeros.
void async_copy(void* to, const void* from, std::size_t bytes, std::size_t zeros = 0);
void async_commit();
void async_wait(unsigned newest_left);  // all of this thread's batches but the newest so many have arrived

}  // namespace emulator
