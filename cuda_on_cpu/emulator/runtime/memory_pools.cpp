// The memory pools: which ones there are, their attributes, and what was taken from each.
#include "emulator/memory_pools.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "emulator/scheduler.h"

struct CUmemPoolHandle_st {
  int reuse[4] = {0, 1, 1, 1};  // by the number of the attribute
  std::uint64_t threshold = 0, used = 0, used_high = 0, reserved_high = 0;
};

namespace emulator {
namespace {

constexpr std::uint64_t kReservedAtOnce = 32 << 20;

struct Pools {
  std::mutex mutex;
  CUmemPoolHandle_st first;
  std::set<cudaMemPool_t> live{&first};
  cudaMemPool_t chosen = &first;
  struct Taken {
    cudaMemPool_t pool;
    std::size_t bytes;
  };
  std::map<void*, Taken> taken;
};
Pools& pools() {
  static auto* all = new Pools;
  return *all;
}

std::uint64_t reserved(const CUmemPoolHandle_st& pool) { return (pool.used + kReservedAtOnce - 1) / kReservedAtOnce * kReservedAtOnce; }

}  // namespace

cudaError_t device_pool(cudaMemPool_t* pool, int device, bool own) {
  if (device != 0) return give(cudaErrorInvalidDevice);
  std::lock_guard lock(pools().mutex);
  *pool = own ? pools().chosen : &pools().first;
  return synchronize();
}

cudaError_t set_device_pool(int device, cudaMemPool_t pool) {
  if (check_pool(pool) || device != 0) return give(device ? cudaErrorInvalidDevice : cudaErrorInvalidValue);
  std::lock_guard lock(pools().mutex);
  pools().chosen = pool;
  return synchronize();
}

cudaError_t create_pool(cudaMemPool_t* pool, const cudaMemPoolProps* wanted) {
  if (!wanted || wanted->allocType != cudaMemAllocationTypePinned || wanted->location.type != cudaMemLocationTypeDevice || wanted->location.id != 0)
    return give(cudaErrorInvalidValue);
  std::lock_guard lock(pools().mutex);
  pools().live.insert(*pool = new CUmemPoolHandle_st);
  return synchronize();
}

// The memory that was taken from a pool stays valid, so its handle is kept.
cudaError_t destroy_pool(cudaMemPool_t pool) {
  std::lock_guard lock(pools().mutex);
  if (pool == &pools().first || !pools().live.erase(pool)) return give(cudaErrorInvalidValue);
  if (pools().chosen == pool) pools().chosen = &pools().first;
  return synchronize();
}

cudaError_t check_pool(cudaMemPool_t pool) {
  std::lock_guard lock(pools().mutex);
  return pools().live.count(pool) ? synchronize() : give(cudaErrorInvalidValue);
}

cudaError_t set_pool(cudaMemPool_t pool, cudaMemPoolAttr which, void* value) {
  if (check_pool(pool)) return cudaErrorInvalidValue;
  std::lock_guard lock(pools().mutex);
  if (which >= cudaMemPoolReuseFollowEventDependencies && which <= cudaMemPoolReuseAllowInternalDependencies) pool->reuse[which] = *static_cast<int*>(value);
  else if (which == cudaMemPoolAttrReleaseThreshold) pool->threshold = *static_cast<std::uint64_t*>(value);
  else if (which == cudaMemPoolAttrUsedMemHigh && !*static_cast<std::uint64_t*>(value)) pool->used_high = pool->used;
  else if (which == cudaMemPoolAttrReservedMemHigh && !*static_cast<std::uint64_t*>(value)) pool->reserved_high = reserved(*pool);
  else return give(cudaErrorInvalidValue);
  return synchronize();
}

cudaError_t get_pool(cudaMemPool_t pool, cudaMemPoolAttr which, void* value) {
  if (check_pool(pool)) return cudaErrorInvalidValue;
  std::lock_guard lock(pools().mutex);
  if (which >= cudaMemPoolReuseFollowEventDependencies && which <= cudaMemPoolReuseAllowInternalDependencies) {
    *static_cast<int*>(value) = pool->reuse[which];
    return synchronize();
  }
  const std::uint64_t numbers[] = {pool->threshold, reserved(*pool), pool->reserved_high, pool->used, pool->used_high};
  if (which < cudaMemPoolAttrReleaseThreshold || which > cudaMemPoolAttrUsedMemHigh) return give(cudaErrorInvalidValue);
  *static_cast<std::uint64_t*>(value) = numbers[which - cudaMemPoolAttrReleaseThreshold];
  return synchronize();
}

cudaError_t allocate_from(void** address, std::size_t bytes, cudaMemPool_t pool, cudaStream_t stream, const char* file, int line) {
  if (captures(stream)) lack(file, line, "an allocation in a capture of a stream");
  if (pool && check_pool(pool)) return cudaErrorInvalidValue;
  if (const cudaError_t error = allocate(address, bytes)) return error;
  std::lock_guard lock(pools().mutex);
  if (!pool) pool = pools().chosen;
  pools().taken[*address] = {pool, bytes};
  pool->used += bytes;
  pool->used_high = std::max(pool->used_high, pool->used);
  pool->reserved_high = std::max(pool->reserved_high, reserved(*pool));
  return cudaSuccess;
}

void freed_to_pool(void* address) {
  std::lock_guard lock(pools().mutex);
  const auto found = pools().taken.find(address);
  if (found == pools().taken.end()) return;
  found->second.pool->used -= found->second.bytes;
  pools().taken.erase(found);
}

}  // namespace emulator
