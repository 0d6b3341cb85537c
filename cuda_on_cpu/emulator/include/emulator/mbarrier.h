// mbarrier objects, and the copies of bulk data (TMA) whose bytes they count. A phase of an mbarrier ends when no arrival
// and no byte is missing.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#parallel-synchronization-and-communication-instructions-mbarrier
#pragma once
#include <cstddef>
#include <cstdint>

#include "emulator/scheduler.h"

namespace emulator {

void mbarrier_init(void* barrier, std::uint32_t count, SourcePlace place);
void mbarrier_end(void* barrier, SourcePlace place);
// Counts arrivals, and returns the state of the phase in which they were. `drops` leaves later phases without them.
std::uint64_t mbarrier_arrive(void* barrier, std::uint32_t count, SourcePlace place, bool drops = false);
void mbarrier_expect(void* barrier, std::int64_t bytes, SourcePlace place);  // more bytes are missing in this phase; below 0, fewer
bool mbarrier_parity(std::uint64_t state);
std::uint32_t mbarrier_missing(std::uint64_t state);  // the missing arrivals
// Waits until the phase with this parity has ended. The result is false if it has not, and no other thread can go on:
// then CUDA's time limit has passed.
bool mbarrier_wait(const void* barrier, bool parity, SourcePlace place);

// The operations of reductions in bulk, and the types of their numbers.
enum class BulkOperation { kAdd, kMin, kMax, kInc, kDec, kAnd, kOr, kXor };
enum class BulkType { kU32, kS32, kU64, kS64, kHalf, kBfloat16, kFloat, kDouble };
struct Reduction {
  BulkOperation operation;
  BulkType type;
};
// Bulk copies are made later, by the GPU's copy unit. A load counts down the bytes of a barrier in shared memory. With
// a mask, it goes to the same place in each block of the cluster whose bit is set, and counts at the barrier there.
void bulk_load(void* to, const void* from, std::uint32_t bytes, void* barrier, SourcePlace place, std::uint32_t mask = 0, const Reduction* reduction = nullptr);
// A load of a value of at most 16 bytes: st.async and red.async.
void async_store(void* to, const void* value, std::uint32_t bytes, void* barrier, SourcePlace place, const Reduction* reduction = nullptr);
// A store joins the open bulk group of its thread.
void bulk_store(void* to, const void* from, std::uint32_t bytes, SourcePlace place, const Reduction* reduction = nullptr);
void bulk_commit();
void bulk_wait(unsigned newest_left, SourcePlace place);
// cp.async.mbarrier.arrive: arrives when the earlier copies by cp.async of this thread are made. Unless `counts`, one
// more arrival is missing from now on.
void async_arrive(void* barrier, bool counts, SourcePlace place);
void fence_proxy_async();  // orders earlier accesses of ordinary instructions before later ones of the units above and of wgmma

}  // namespace emulator
