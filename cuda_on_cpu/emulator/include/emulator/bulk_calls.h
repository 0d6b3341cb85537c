// The functions of CUDA's C++ library for mbarriers and bulk copies: cuda::device::experimental and cuda::ptx.
// https://nvidia.github.io/cccl/libcudacxx/ptx_api.html
#pragma once
#include "emulator/block_barrier.h"
#include "emulator/cluster.h"
#include "emulator/tensor_map.h"
#include "emulator/warp.h"

namespace cuda::device::experimental {

inline void fence_proxy_async_shared_cta() { emulator::fence_proxy_async(); }
template <class B>
void cp_async_bulk_global_to_shared(void* to, const void* from, std::uint32_t bytes, B& bar, EMULATOR_CALLER) { emulator::bulk_load(to, from, bytes, bar.native(), place); }
inline void cp_async_bulk_shared_to_global(void* to, const void* from, std::uint32_t bytes, EMULATOR_CALLER) { emulator::bulk_store(to, from, bytes, place); }
inline void cp_async_bulk_commit_group() { emulator::bulk_commit(); }
template <int kNewest>
void cp_async_bulk_wait_group_read(EMULATOR_CALLER) { emulator::bulk_wait(kNewest, place); }
template <class B>
void cp_async_bulk_tensor_1d_global_to_shared(void* to, const CUtensorMap* map, int c0, B& bar, EMULATOR_CALLER) {
  emulator::tensor_load(to, {map, 1, {c0}}, bar.native(), place);
}
inline void cp_async_bulk_tensor_1d_shared_to_global(const CUtensorMap* map, int c0, const void* from, EMULATOR_CALLER) {
  emulator::tensor_store({map, 1, {c0}}, from, place);
}
template <class B>
void cp_async_bulk_tensor_2d_global_to_shared(void* to, const CUtensorMap* map, int c0, int c1, B& bar, EMULATOR_CALLER) {
  emulator::tensor_load(to, {map, 2, {c0, c1}}, bar.native(), place);
}
inline void cp_async_bulk_tensor_2d_shared_to_global(const CUtensorMap* map, int c0, int c1, const void* from, EMULATOR_CALLER) {
  emulator::tensor_store({map, 2, {c0, c1}}, from, place);
}
template <class B>
void cp_async_bulk_tensor_3d_global_to_shared(void* to, const CUtensorMap* map, int c0, int c1, int c2, B& bar, EMULATOR_CALLER) {
  emulator::tensor_load(to, {map, 3, {c0, c1, c2}}, bar.native(), place);
}
inline void cp_async_bulk_tensor_3d_shared_to_global(const CUtensorMap* map, int c0, int c1, int c2, const void* from, EMULATOR_CALLER) {
  emulator::tensor_store({map, 3, {c0, c1, c2}}, from, place);
}
template <class B>
void cp_async_bulk_tensor_4d_global_to_shared(void* to, const CUtensorMap* map, int c0, int c1, int c2, int c3, B& bar, EMULATOR_CALLER) {
  emulator::tensor_load(to, {map, 4, {c0, c1, c2, c3}}, bar.native(), place);
}
inline void cp_async_bulk_tensor_4d_shared_to_global(const CUtensorMap* map, int c0, int c1, int c2, int c3, const void* from, EMULATOR_CALLER) {
  emulator::tensor_store({map, 4, {c0, c1, c2, c3}}, from, place);
}
template <class B>
void cp_async_bulk_tensor_5d_global_to_shared(void* to, const CUtensorMap* map, int c0, int c1, int c2, int c3, int c4, B& bar, EMULATOR_CALLER) {
  emulator::tensor_load(to, {map, 5, {c0, c1, c2, c3, c4}}, bar.native(), place);
}
inline void cp_async_bulk_tensor_5d_shared_to_global(const CUtensorMap* map, int c0, int c1, int c2, int c3, int c4, const void* from, EMULATOR_CALLER) {
  emulator::tensor_store({map, 5, {c0, c1, c2, c3, c4}}, from, place);
}

}  // namespace cuda::device::experimental

namespace cuda::ptx {

#define EMULATOR_TAG(NAME) \
  struct NAME##_t {};      \
  inline constexpr NAME##_t NAME{};
EMULATOR_TAG(space_global)
EMULATOR_TAG(space_shared)
EMULATOR_TAG(space_cluster)
EMULATOR_TAG(sem_acquire)
EMULATOR_TAG(sem_release)
EMULATOR_TAG(sem_relaxed)
EMULATOR_TAG(sem_acq_rel)
EMULATOR_TAG(sem_sc)
EMULATOR_TAG(scope_cta)
EMULATOR_TAG(scope_cluster)
EMULATOR_TAG(scope_gpu)
EMULATOR_TAG(scope_sys)
#undef EMULATOR_TAG
#define EMULATOR_OPERATION(NAME, OPERATION)                                                     \
  struct NAME##_t {                                                                             \
    static constexpr emulator::BulkOperation operation = emulator::BulkOperation::OPERATION;    \
  };                                                                                            \
  inline constexpr NAME##_t NAME{};
EMULATOR_OPERATION(op_add, kAdd)
EMULATOR_OPERATION(op_min, kMin)
EMULATOR_OPERATION(op_max, kMax)
EMULATOR_OPERATION(op_inc, kInc)
EMULATOR_OPERATION(op_dec, kDec)
EMULATOR_OPERATION(op_and_op, kAnd)
EMULATOR_OPERATION(op_or_op, kOr)
EMULATOR_OPERATION(op_xor_op, kXor)
#undef EMULATOR_OPERATION
template <class T, class Operation>
constexpr emulator::Reduction emulator_reduction() {
  using emulator::BulkType;
  if constexpr (std::is_integral_v<T>) return {Operation::operation, sizeof(T) == 8 ? (std::is_signed_v<T> ? BulkType::kS64 : BulkType::kU64) : std::is_signed_v<T> ? BulkType::kS32 : BulkType::kU32};
  else if constexpr (sizeof(T) == 2) return {Operation::operation, std::is_same_v<T, __half> ? BulkType::kHalf : BulkType::kBfloat16};
  else return {Operation::operation, sizeof(T) == 8 ? BulkType::kDouble : BulkType::kFloat};
}
template <int kNumber>
struct n32_t {
  static constexpr int value = kNumber;
};

inline void mbarrier_init(std::uint64_t* barrier, std::uint32_t count, EMULATOR_CALLER) { emulator::mbarrier_init(barrier, count, place); }
inline std::uint64_t mbarrier_arrive(std::uint64_t* barrier, std::uint32_t count = 1, EMULATOR_CALLER) { return emulator::mbarrier_arrive(barrier, count, place); }
template <class Order, class Scope, class Space>
std::uint64_t mbarrier_arrive(Order, Scope, Space, std::uint64_t* barrier, std::uint32_t count = 1, EMULATOR_CALLER) { return emulator::mbarrier_arrive(barrier, count, place); }
template <class Order, class Scope, class Space>
std::uint64_t mbarrier_arrive_expect_tx(Order, Scope, Space, std::uint64_t* barrier, std::uint32_t bytes, EMULATOR_CALLER) {
  emulator::mbarrier_expect(barrier, bytes, place);
  return emulator::mbarrier_arrive(barrier, 1, place);
}
template <class Order, class Scope, class Space>
void mbarrier_expect_tx(Order, Scope, Space, std::uint64_t* barrier, std::uint32_t bytes, EMULATOR_CALLER) { emulator::mbarrier_expect(barrier, bytes, place); }
inline bool mbarrier_try_wait(std::uint64_t* barrier, const std::uint64_t& state, EMULATOR_CALLER) {
  return emulator::mbarrier_wait(barrier, emulator::mbarrier_parity(state), place);
}
inline bool mbarrier_try_wait_parity(std::uint64_t* barrier, std::uint32_t parity, EMULATOR_CALLER) {
  return emulator::mbarrier_wait(barrier, parity & 1, place);
}
template <class Order, class Scope>
bool mbarrier_try_wait(Order, Scope, std::uint64_t* barrier, const std::uint64_t& state, EMULATOR_CALLER) {
  return mbarrier_try_wait(barrier, state, place);
}
template <class Order, class Scope>
bool mbarrier_try_wait_parity(Order, Scope, std::uint64_t* barrier, std::uint32_t parity, EMULATOR_CALLER) {
  return mbarrier_try_wait_parity(barrier, parity, place);
}
inline bool mbarrier_test_wait(std::uint64_t* barrier, const std::uint64_t& state, EMULATOR_CALLER) { return mbarrier_try_wait(barrier, state, place); }
inline bool mbarrier_test_wait_parity(std::uint64_t* barrier, std::uint32_t parity, EMULATOR_CALLER) {
  return mbarrier_try_wait_parity(barrier, parity, place);
}

template <class To>
void cp_async_bulk(To, space_global_t, void* to, const void* from, std::uint32_t bytes, std::uint64_t* barrier, EMULATOR_CALLER) { emulator::bulk_load(to, from, bytes, barrier, place); }
inline void cp_async_bulk(space_cluster_t, space_shared_t, void* to, const void* from, std::uint32_t bytes, std::uint64_t* barrier, EMULATOR_CALLER) { emulator::bulk_load(to, from, bytes, barrier, place); }
inline void cp_async_bulk(space_cluster_t, space_global_t, void* to, const void* from, std::uint32_t bytes, std::uint64_t* barrier, std::uint16_t mask, EMULATOR_CALLER) { emulator::bulk_load(to, from, bytes, barrier, place, mask); }
inline void cp_async_bulk(space_global_t, space_shared_t, void* to, const void* from, std::uint32_t bytes, EMULATOR_CALLER) { emulator::bulk_store(to, from, bytes, place); }
template <class Operation, class T>
void cp_reduce_async_bulk(space_cluster_t, space_shared_t, Operation, T* to, const T* from, std::uint32_t bytes, std::uint64_t* barrier, EMULATOR_CALLER) {
  constexpr auto by = emulator_reduction<T, Operation>();
  emulator::bulk_load(to, from, bytes, barrier, place, 0, &by);
}
template <class Operation, class T>
void cp_reduce_async_bulk(space_global_t, space_shared_t, Operation, T* to, const T* from, std::uint32_t bytes, EMULATOR_CALLER) {
  constexpr auto by = emulator_reduction<T, Operation>();
  emulator::bulk_store(to, from, bytes, place, &by);
}
template <class T>
void st_async(T* to, const T& value, std::uint64_t* barrier, EMULATOR_CALLER) { emulator::async_store(to, &value, sizeof value, barrier, place); }
template <class T, std::size_t kCount>
void st_async(T* to, const T (&values)[kCount], std::uint64_t* barrier, EMULATOR_CALLER) { emulator::async_store(to, values, sizeof values, barrier, place); }
template <class Operation, class T>
void red_async(Operation, T* to, const T& value, std::uint64_t* barrier, EMULATOR_CALLER) {
  constexpr auto by = emulator_reduction<T, Operation>();
  emulator::async_store(to, &value, sizeof value, barrier, place, &by);
}
inline void cp_async_bulk_commit_group() { emulator::bulk_commit(); }
template <int kNewest>
void cp_async_bulk_wait_group(n32_t<kNewest>, EMULATOR_CALLER) { emulator::bulk_wait(kNewest, place); }
template <int kNewest>
void cp_async_bulk_wait_group_read(n32_t<kNewest>, EMULATOR_CALLER) { emulator::bulk_wait(kNewest, place); }
template <std::size_t kRank>
emulator::Tile emulator_tile(const void* map, const std::int32_t (&at)[kRank]) {
  emulator::Tile tile{static_cast<const CUtensorMap*>(map), kRank, {}};
  for (std::size_t i = 0; i < kRank; ++i) tile.at[i] = at[i];
  return tile;
}
template <class To, std::size_t kRank>
void cp_async_bulk_tensor(To, space_global_t, void* to, const void* map, const std::int32_t (&at)[kRank], std::uint64_t* barrier, std::uint16_t mask = 0, EMULATOR_CALLER) {
  emulator::tensor_load(to, emulator_tile(map, at), barrier, place, mask);
}
template <std::size_t kRank>
void cp_async_bulk_tensor(space_global_t, space_shared_t, const void* map, const std::int32_t (&at)[kRank], const void* from, EMULATOR_CALLER) { emulator::tensor_store(emulator_tile(map, at), from, place); }

template <class Operation, std::size_t kRank>
void cp_reduce_async_bulk_tensor(space_global_t, space_shared_t, Operation, const void* map, const std::int32_t (&at)[kRank], const void* from, EMULATOR_CALLER) {
  constexpr auto by = emulator_reduction<std::uint32_t, Operation>();  // the tensor map has the type
  emulator::tensor_store(emulator_tile(map, at), from, place, &by);
}

inline void fence_proxy_async() { emulator::fence_proxy_async(); }
template <class Space>
void fence_proxy_async(Space) { emulator::fence_proxy_async(); }
inline void fence_mbarrier_init(sem_release_t, scope_cluster_t) { __threadfence(); }
inline void barrier_cluster_arrive() { emulator::cluster_arrive(); }
template <class Order>
void barrier_cluster_arrive(Order) { emulator::cluster_arrive(); }
inline void barrier_cluster_wait(EMULATOR_CALLER) { emulator::cluster_wait(place); }
template <class Order>
void barrier_cluster_wait(Order, EMULATOR_CALLER) { emulator::cluster_wait(place); }
template <class T>
T* mapa(space_cluster_t, T* address, std::uint32_t rank) { return static_cast<T*>(emulator::in_block_of_cluster(address, rank)); }
inline bool elect_sync(std::uint32_t mask) { return static_cast<unsigned>(std::countr_zero(emulator::meet(mask, 0).lanes)) == emulator::lane(); }
inline std::uint32_t get_sreg_cluster_ctarank() { return emulator::cluster_rank(); }
inline std::uint32_t get_sreg_cluster_nctarank() { return emulator::cluster_blocks(); }
inline std::uint32_t get_sreg_laneid() { return emulator::lane(); }

}  // namespace cuda::ptx
