// The group types of cooperative groups. Their reductions and scans are in group_algorithms.h.
#pragma once
#include <algorithm>
#include <bit>
#include <type_traits>

#include "emulator/cluster.h"
#include "emulator/kernel.h"

namespace emulator {
inline unsigned thread_rank() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
inline unsigned block_size() { return blockDim.x * blockDim.y * blockDim.z; }
}  // namespace emulator

namespace cooperative_groups {

class thread_block;

// A group of some lanes of one warp, ranked in lane order. It is the base class of tiles and coalesced groups.
class lanes_group {
 public:
  explicit lanes_group(unsigned mask, unsigned group_rank = 0, unsigned groups = 1) : mask_(mask), meta_rank_(group_rank), meta_size_(groups) {}

  void sync() const { __syncwarp(mask_); }
  unsigned long long thread_rank() const { return std::popcount(mask_ & ((1u << emulator::lane()) - 1)); }
  unsigned long long size() const { return std::popcount(mask_); }
  unsigned long long num_threads() const { return size(); }
  unsigned long long meta_group_rank() const { return meta_rank_; }
  unsigned long long meta_group_size() const { return meta_size_; }

  template <class T>
  T shfl(T value, int rank) const { return from(value, static_cast<unsigned>(rank) % size()); }
  template <class T>
  T shfl_up(T value, unsigned delta) const { return from(value, thread_rank() >= delta ? thread_rank() - delta : thread_rank()); }
  template <class T>
  T shfl_down(T value, unsigned delta) const { return from(value, thread_rank() + delta < size() ? thread_rank() + delta : thread_rank()); }

  int any(int predicate) const { return __any_sync(mask_, predicate); }
  int all(int predicate) const { return __all_sync(mask_, predicate); }
  unsigned ballot(int predicate) const { return ranks_of(__ballot_sync(mask_, predicate)); }
  template <class T>
  unsigned match_any(T value) const { return ranks_of(__match_any_sync(mask_, value)); }
  template <class T>
  unsigned match_all(T value, int& same) const { return ranks_of(__match_all_sync(mask_, value, &same)); }

  unsigned lane_mask() const { return mask_; }
  unsigned lane_of(unsigned long long rank) const {
    unsigned mask = mask_;
    for (; rank; --rank) mask &= mask - 1;
    return static_cast<unsigned>(std::countr_zero(mask));
  }

 protected:
  template <class T>
  T from(const T& value, unsigned long long rank) const { return emulator::Gathered<T>(mask_, value).of(lane_of(rank)); }

 private:
  unsigned ranks_of(unsigned lanes) const {
    unsigned out = 0, rank = 0;
    for (unsigned i = 0; i < emulator::kWarpSize; ++i)
      if (mask_ >> i & 1) out |= (lanes >> i & 1) << rank++;
    return out;
  }
  unsigned mask_, meta_rank_, meta_size_;
};

class coalesced_group : public lanes_group {
 public:
  using lanes_group::lanes_group;
};
__attribute__((always_inline)) inline coalesced_group coalesced_threads() { return coalesced_group(emulator::converged_lanes()); }

class thread_block {
 public:
  static void sync() { __syncthreads(); }
  struct arrival_token {};
  static unsigned thread_rank() { return emulator::thread_rank(); }
  static unsigned size() { return emulator::block_size(); }
  static unsigned num_threads() { return emulator::block_size(); }
  static dim3 group_index() { return blockIdx; }
  static dim3 thread_index() { return threadIdx; }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }
// Memory for tiles of several warps, which need none here.
template <unsigned kMostThreads = 1024>
struct block_tile_memory {
  char bytes[kMostThreads > 32 ? kMostThreads / 32 * 16 : 16];
};
template <unsigned kMostThreads>
thread_block this_thread_block(block_tile_memory<kMostThreads>&) { return {}; }

class grid_group {
 public:
  static bool is_valid() { return emulator::grid_is_cooperative(); }
  static void sync() { emulator::grid_barrier(); }
  static unsigned long long block_rank() { return blockIdx.x + static_cast<unsigned long long>(gridDim.x) * (blockIdx.y + static_cast<unsigned long long>(gridDim.y) * blockIdx.z); }
  static unsigned long long num_blocks() { return static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z; }
  static unsigned long long thread_rank() { return block_rank() * emulator::block_size() + emulator::thread_rank(); }
  static unsigned long long size() { return num_blocks() * emulator::block_size(); }
  static unsigned long long num_threads() { return size(); }
  static dim3 block_index() { return blockIdx; }
  static dim3 dim_blocks() { return gridDim; }
  static dim3 group_dim() { return gridDim; }
  static dim3 dim_clusters() { return emulator::cluster_grid(); }
  static dim3 cluster_index() { return emulator::cluster_index(); }
  static unsigned long long num_clusters() { return static_cast<unsigned long long>(dim_clusters().x) * dim_clusters().y * dim_clusters().z; }
  static unsigned long long cluster_rank() { return cluster_index().x + static_cast<unsigned long long>(dim_clusters().x) * (cluster_index().y + static_cast<unsigned long long>(dim_clusters().y) * cluster_index().z); }
};
inline grid_group this_grid() { return {}; }

// The blocks of a cluster.
class cluster_group {
 public:
  struct arrival_token {};
  static void sync(EMULATOR_CALLER) { emulator::cluster_arrive(), emulator::cluster_wait(place); }
  static arrival_token barrier_arrive() { return emulator::cluster_arrive(), arrival_token{}; }
  static void barrier_wait(EMULATOR_CALLER) { emulator::cluster_wait(place); }
  static void barrier_wait(arrival_token, EMULATOR_CALLER) { emulator::cluster_wait(place); }
  template <class T>
  static T* map_shared_rank(T* address, int rank) {
    return static_cast<T*>(emulator::in_block_of_cluster(const_cast<const void*>(static_cast<const volatile void*>(address)), static_cast<unsigned>(rank)));
  }
  static unsigned query_shared_rank(const void* address) { return emulator::block_of_address(address); }
  static unsigned block_rank() { return emulator::cluster_rank(); }
  static dim3 dim_blocks() { return emulator::cluster_size(); }
  static unsigned num_blocks() { return emulator::cluster_blocks(); }
  static dim3 block_index() { return {blockIdx.x % dim_blocks().x, blockIdx.y % dim_blocks().y, blockIdx.z % dim_blocks().z}; }
  static unsigned thread_rank() { return block_rank() * emulator::block_size() + emulator::thread_rank(); }
  static unsigned num_threads() { return num_blocks() * emulator::block_size(); }
  static unsigned size() { return num_threads(); }
  static dim3 dim_threads() { return {dim_blocks().x * blockDim.x, dim_blocks().y * blockDim.y, dim_blocks().z * blockDim.z}; }
  static dim3 thread_index() { return {block_index().x * blockDim.x + threadIdx.x, block_index().y * blockDim.y + threadIdx.y, block_index().z * blockDim.z + threadIdx.z}; }
};
inline cluster_group this_cluster() { return {}; }

// A tile of several warps. Its threads exchange values through the block's memory.
template <unsigned N>
class warps_group {
 public:
  static void sync() { emulator::meet_at_barrier(kFirstBarrier + emulator::thread_rank() / N, N, true); }
  static constexpr unsigned size() { return N; }
  static constexpr unsigned num_threads() { return N; }
  static unsigned thread_rank() { return emulator::thread_rank() % N; }
  static unsigned meta_group_rank() { return emulator::thread_rank() / N; }
  static unsigned meta_group_size() { return (emulator::block_size() + N - 1) / N; }
  template <class T>
  T shfl(T value, int rank) const { return combine(value, [=](const T* all) { return all[static_cast<unsigned>(rank) % N]; }); }
  int any(int predicate) const { return combine(predicate, [](const int* all) { return std::any_of(all, all + N, [](int each) { return each != 0; }); }); }
  int all(int predicate) const { return combine(predicate, [](const int* all) { return std::all_of(all, all + N, [](int each) { return each != 0; }); }); }
  // Returns `work` of the values of all threads of the tile, by their ranks.
  template <class T, class Work>
  auto combine(const T& value, Work work) const {
    static thread_local T values[kMostThreads];  // a block's, like a __shared__ variable
    values[emulator::thread_rank()] = value;
    sync();
    const auto out = work(values + meta_group_rank() * N);
    sync();
    return out;
  }

 private:
  static constexpr unsigned kMostThreads = 1024, kFirstBarrier = 64 * N;  // no number that bar.sync can have
};

// A tile: N neighbouring threads of a block. N is a power of two.
template <unsigned N, class Parent = void>
class thread_block_tile : public std::conditional_t<(N > 32), warps_group<N>, lanes_group> {
 public:
  thread_block_tile() = default;
  template <class Other>
  thread_block_tile(const thread_block_tile<N, Other>&) {}
};
template <unsigned N, class Parent>
  requires(N <= 32)
class thread_block_tile<N, Parent> : public lanes_group {
  static_assert(N && !(N & (N - 1)), "the size of a tile is a power of two");

 public:
  thread_block_tile() : lanes_group(mask(), emulator::thread_rank() / N, (emulator::block_size() + N - 1) / N) {}
  template <class Other>
  thread_block_tile(const thread_block_tile<N, Other>& other) : lanes_group(other) {}
  static constexpr unsigned size() { return N; }
  static constexpr unsigned num_threads() { return N; }
  static unsigned thread_rank() { return emulator::lane() % N; }
  template <class T>
  T shfl_xor(T value, unsigned bits) const {
    const unsigned other = thread_rank() ^ bits;
    return from(value, other < N ? other : thread_rank());
  }

 private:
  static unsigned mask() { return (N == 32 ? ~0u : (1u << (N % 32)) - 1) << emulator::lane() / N * N; }
};

// A group that is a block or some lanes of a warp, which is known only at run time.
class thread_group : public lanes_group {
 public:
  thread_group(const thread_block&) : lanes_group(0), block_(true) {}
  thread_group(const lanes_group& lanes) : lanes_group(lanes) {}
  void sync() const { block_ ? __syncthreads() : lanes_group::sync(); }
  unsigned long long thread_rank() const { return block_ ? emulator::thread_rank() : lanes_group::thread_rank(); }
  unsigned long long size() const { return block_ ? emulator::block_size() : lanes_group::size(); }
  unsigned long long num_threads() const { return size(); }

 private:
  bool block_ = false;
};

template <unsigned N>
thread_block_tile<N, thread_block> tiled_partition(const thread_block&) { return {}; }
template <unsigned N, unsigned M, class P>
thread_block_tile<N, thread_block_tile<M, P>> tiled_partition(const thread_block_tile<M, P>&) {
  static_assert(N <= M, "a tile is divided into smaller ones");
  return {};
}
// Returns the calling thread's part of a group. Each part is `size` lanes with consecutive ranks in the group.
template <class Group>
coalesced_group tiled_partition(const Group& group, unsigned size) {
  unsigned lanes = group.lane_mask(), out = 0;
  const unsigned first = static_cast<unsigned>(group.thread_rank()) / size * size;
  for (unsigned rank = 0; lanes; ++rank, lanes &= lanes - 1)
    if (rank >= first && rank < first + size) out |= lanes & -lanes;
  return coalesced_group(out, first / size, static_cast<unsigned>((group.size() + size - 1) / size));
}
inline thread_group tiled_partition(const thread_block&, unsigned size) {
  const unsigned lane = emulator::lane();
  return coalesced_group((size == 32 ? ~0u : (1u << size) - 1) << lane / size * size, emulator::thread_rank() / size, emulator::block_size() / size);
}
inline thread_group tiled_partition(const thread_group& group, unsigned size) {
  return group.lane_mask() ? thread_group(tiled_partition<lanes_group>(group, size)) : tiled_partition(thread_block(), size);
}
template <class Group, class Label>
coalesced_group labeled_partition(const Group& group, Label label) {
  return coalesced_group(__match_any_sync(group.lane_mask(), label));
}
template <class Group>
coalesced_group binary_partition(const Group& group, bool side) {
  const unsigned yes = __ballot_sync(group.lane_mask(), side);
  return coalesced_group(side ? yes : group.lane_mask() & ~yes, side, 2);
}

template <class Group>
void sync(const Group& group) { group.sync(); }
template <class Group>
auto thread_rank(const Group& group) { return group.thread_rank(); }
template <class Group>
auto group_size(const Group& group) { return group.size(); }
template <class Group, class Function, class... Arguments>
void invoke_one(const Group& group, Function function, Arguments... arguments) {
  if (group.thread_rank() == 0) function(arguments...);
}

}  // namespace cooperative_groups
