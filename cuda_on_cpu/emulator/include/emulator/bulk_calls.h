// The functions of CUDA's C++ library for mbarriers and bulk copies: cuda::device::experimental and cuda::ptx.
// https://nvidia.github.io/cccl/libcudacxx/ptx_api.html
#pragma once
#include "emulator/block_barrier.h"
#include "emulator/cluster.h"
#include "emulator/tensor_map.h"
#include "emulator/warp.h"

namespace cuda::device::experimental {

inline void fence_proxy_async_shared_cta() { __threadfence_block(); }
template <class B>
void cp_async_bulk_global_to_shared(void* to, const void* from, std::uint32_t bytes, B& bar) { emulator::bulk_load(to, from, bytes, bar.native()); }
inline void cp_async_bulk_shared_to_global(void* to, const void* from, std::uint32_t bytes) { emulator::bulk_store(to, from, bytes); }
inline void cp_async_bulk_commit_group() { emulator::bulk_commit(); }
template <int kNewest>
void cp_async_bulk_wait_group_read(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { emulator::bulk_wait(kNewest, {file, line}); }
template <class B>
void cp_async_bulk_tensor_1d_global_to_shared(void* to, const CUtensorMap* map, int c0, B& bar) {
  emulator::tensor_load(to, {map, 1, {c0}}, bar.native());
}
inline void cp_async_bulk_tensor_1d_shared_to_global(const CUtensorMap* map, int c0, const void* from) {
  emulator::tensor_store({map, 1, {c0}}, from);
}
template <class B>
void cp_async_bulk_tensor_2d_global_to_shared(void* to, const CUtensorMap* map, int c0, int c1, B& bar) {
  emulator::tensor_load(to, {map, 2, {c0, c1}}, bar.native());
}
inline void cp_async_bulk_tensor_2d_shared_to_global(const CUtensorMap* map, int c0, int c1, const void* from) {
  emulator::tensor_store({map, 2, {c0, c1}}, from);
}
template <class B>
void cp_async_bulk_tensor_3d_global_to_shared(void* to, const CUtensorMap* map, int c0, int c1, int c2, B& bar) {
  emulator::tensor_load(to, {map, 3, {c0, c1, c2}}, bar.native());
}
inline void cp_async_bulk_tensor_3d_shared_to_global(const CUtensorMap* map, int c0, int c1, int c2, const void* from) {
  emulator::tensor_store({map, 3, {c0, c1, c2}}, from);
}
template <class B>
void cp_async_bulk_tensor_4d_global_to_shared(void* to, const CUtensorMap* map, int c0, int c1, int c2, int c3, B& bar) {
  emulator::tensor_load(to, {map, 4, {c0, c1, c2, c3}}, bar.native());
}
inline void cp_async_bulk_tensor_4d_shared_to_global(const CUtensorMap* map, int c0, int c1, int c2, int c3, const void* from) {
  emulator::tensor_store({map, 4, {c0, c1, c2, c3}}, from);
}
template <class B>
void cp_async_bulk_tensor_5d_global_to_shared(void* to, const CUtensorMap* map, int c0, int c1, int c2, int c3, int c4, B& bar) {
  emulator::tensor_load(to, {map, 5, {c0, c1, c2, c3, c4}}, bar.native());
}
inline void cp_async_bulk_tensor_5d_shared_to_global(const CUtensorMap* map, int c0, int c1, int c2, int c3, int c4, const void* from) {
  emulator::tensor_store({map, 5, {c0, c1, c2, c3, c4}}, from);
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

inline void mbarrier_init(std::uint64_t* barrier, std::uint32_t count) { emulator::mbarrier_init(barrier, count); }
inline std::uint64_t mbarrier_arrive(std::uint64_t* barrier, std::uint32_t count = 1) { return emulator::mbarrier_arrive(barrier, count); }
template <class Order, class Scope, class Space>
std::uint64_t mbarrier_arrive(Order, Scope, Space, std::uint64_t* barrier, std::uint32_t count = 1) { return emulator::mbarrier_arrive(barrier, count); }
template <class Order, class Scope, class Space>
std::uint64_t mbarrier_arrive_expect_tx(Order, Scope, Space, std::uint64_t* barrier, std::uint32_t bytes) {
  emulator::mbarrier_expect(barrier, bytes);
  return emulator::mbarrier_arrive(barrier, 1);
}
template <class Order, class Scope, class Space>
void mbarrier_expect_tx(Order, Scope, Space, std::uint64_t* barrier, std::uint32_t bytes) { emulator::mbarrier_expect(barrier, bytes); }
inline bool mbarrier_try_wait(std::uint64_t* barrier, const std::uint64_t& state, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return emulator::mbarrier_wait(barrier, emulator::mbarrier_parity(state), {file, line});
}
inline bool mbarrier_try_wait_parity(std::uint64_t* barrier, std::uint32_t parity, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return emulator::mbarrier_wait(barrier, parity & 1, {file, line});
}
template <class Order, class Scope>
bool mbarrier_try_wait(Order, Scope, std::uint64_t* barrier, const std::uint64_t& state, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return mbarrier_try_wait(barrier, state, file, line);
}
template <class Order, class Scope>
bool mbarrier_try_wait_parity(Order, Scope, std::uint64_t* barrier, std::uint32_t parity, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return mbarrier_try_wait_parity(barrier, parity, file, line);
}
inline bool mbarrier_test_wait(std::uint64_t* barrier, const std::uint64_t& state, const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return mbarrier_try_wait(barrier, state, file, line); }
inline bool mbarrier_test_wait_parity(std::uint64_t* barrier, std::uint32_t parity, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return mbarrier_try_wait_parity(barrier, parity, file, line);
}

template <class To>
void cp_async_bulk(To, space_global_t, void* to, const void* from, std::uint32_t bytes, std::uint64_t* barrier) { emulator::bulk_load(to, from, bytes, barrier); }
inline void cp_async_bulk(space_cluster_t, space_shared_t, void* to, const void* from, std::uint32_t bytes, std::uint64_t* barrier) { emulator::bulk_load(to, from, bytes, barrier); }
inline void cp_async_bulk(space_cluster_t, space_global_t, void* to, const void* from, std::uint32_t bytes, std::uint64_t* barrier, std::uint16_t mask) { emulator::bulk_load(to, from, bytes, barrier, mask); }
inline void cp_async_bulk(space_global_t, space_shared_t, void* to, const void* from, std::uint32_t bytes) { emulator::bulk_store(to, from, bytes); }
template <class Operation, class T>
void cp_reduce_async_bulk(space_cluster_t, space_shared_t, Operation, T* to, const T* from, std::uint32_t bytes, std::uint64_t* barrier) {
  constexpr auto by = emulator_reduction<T, Operation>();
  emulator::bulk_load(to, from, bytes, barrier, 0, &by);
}
template <class Operation, class T>
void cp_reduce_async_bulk(space_global_t, space_shared_t, Operation, T* to, const T* from, std::uint32_t bytes) {
  constexpr auto by = emulator_reduction<T, Operation>();
  emulator::bulk_store(to, from, bytes, &by);
}
template <class T>
void st_async(T* to, const T& value, std::uint64_t* barrier) { emulator::async_store(to, &value, sizeof value, barrier); }
template <class T, std::size_t kCount>
void st_async(T* to, const T (&values)[kCount], std::uint64_t* barrier) { emulator::async_store(to, values, sizeof values, barrier); }
template <class Operation, class T>
void red_async(Operation, T* to, const T& value, std::uint64_t* barrier) {
  constexpr auto by = emulator_reduction<T, Operation>();
  emulator::async_store(to, &value, sizeof value, barrier, &by);
}
inline void cp_async_bulk_commit_group() { emulator::bulk_commit(); }
template <int kNewest>
void cp_async_bulk_wait_group(n32_t<kNewest>, const char* file = __builtin_FILE(), int line = __builtin_LINE()) { emulator::bulk_wait(kNewest, {file, line}); }
template <int kNewest>
void cp_async_bulk_wait_group_read(n32_t<kNewest>, const char* file = __builtin_FILE(), int line = __builtin_LINE()) { emulator::bulk_wait(kNewest, {file, line}); }
template <std::size_t kRank>
emulator::Tile emulator_tile(const void* map, const std::int32_t (&at)[kRank]) {
  emulator::Tile tile{static_cast<const CUtensorMap*>(map), kRank, {}};
  for (std::size_t i = 0; i < kRank; ++i) tile.at[i] = at[i];
  return tile;
}
template <class To, std::size_t kRank>
void cp_async_bulk_tensor(To, space_global_t, void* to, const void* map, const std::int32_t (&at)[kRank], std::uint64_t* barrier, std::uint16_t mask = 0) {
  emulator::tensor_load(to, emulator_tile(map, at), barrier, mask);
}
template <std::size_t kRank>
void cp_async_bulk_tensor(space_global_t, space_shared_t, const void* map, const std::int32_t (&at)[kRank], const void* from) { emulator::tensor_store(emulator_tile(map, at), from); }

template <class Operation, std::size_t kRank>
void cp_reduce_async_bulk_tensor(space_global_t, space_shared_t, Operation, const void* map, const std::int32_t (&at)[kRank], const void* from) {
  constexpr auto by = emulator_reduction<std::uint32_t, Operation>();  // the tensor map has the type
  emulator::tensor_store(emulator_tile(map, at), from, &by);
}

inline void fence_proxy_async() { __threadfence(); }
template <class Space>
void fence_proxy_async(Space) { __threadfence(); }
inline void fence_mbarrier_init(sem_release_t, scope_cluster_t) { __threadfence(); }
inline void barrier_cluster_arrive() { emulator::cluster_arrive(); }
template <class Order>
void barrier_cluster_arrive(Order) { emulator::cluster_arrive(); }
inline void barrier_cluster_wait(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { emulator::cluster_wait({file, line}); }
template <class Order>
void barrier_cluster_wait(Order, const char* file = __builtin_FILE(), int line = __builtin_LINE()) { emulator::cluster_wait({file, line}); }
template <class T>
T* mapa(space_cluster_t, T* address, std::uint32_t rank) { return static_cast<T*>(emulator::in_block_of_cluster(address, rank)); }
inline bool elect_sync(std::uint32_t mask) { return static_cast<unsigned>(std::countr_zero(emulator::meet(mask, 0).lanes)) == emulator::lane(); }
inline std::uint32_t get_sreg_cluster_ctarank() { return emulator::cluster_rank(); }
inline std::uint32_t get_sreg_cluster_nctarank() { return emulator::cluster_blocks(); }
inline std::uint32_t get_sreg_laneid() { return emulator::lane(); }

}  // namespace cuda::ptx
