// The block and warp collectives of cub. They use shared memory and the emulator's warp operations. A result that cub
// leaves undefined is all ones here, which reads as NaN. The names are those of CUDA 13, in which cuda::std::plus,
// cuda::maximum and cuda::minimum replace cub::Sum, Max and Min.
#pragma once
#include <cstring>
#include <cuda/functional>
#include <functional>
#include <type_traits>

#include "emulator/cooperative_groups.h"

namespace cub {

template <class K, class V>
struct KeyValuePair {
  K key;
  V value;
};
struct ArgMax {
  template <class K, class V>
  KeyValuePair<K, V> operator()(const KeyValuePair<K, V>& a, const KeyValuePair<K, V>& b) const { return b.value > a.value || (b.value == a.value && b.key < a.key) ? b : a; }
};
struct ArgMin {
  template <class K, class V>
  KeyValuePair<K, V> operator()(const KeyValuePair<K, V>& a, const KeyValuePair<K, V>& b) const { return b.value < a.value || (b.value == a.value && b.key < a.key) ? b : a; }
};

enum BlockReduceAlgorithm { BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS };
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

namespace details {

template <class T>
T undefined() {
  alignas(T) unsigned char bytes[sizeof(T)];
  std::memset(bytes, 0xFF, sizeof bytes);
  return *reinterpret_cast<T*>(bytes);
}

// Uninitialised shared memory for kCount values of any type.
template <class T, int kCount>
struct Storage {
  alignas(T) unsigned char bytes[kCount * sizeof(T)];
  T& operator[](int i) { return reinterpret_cast<T*>(bytes)[i]; }
};

}  // namespace details

// Reductions over a block. Only thread 0 gets the result.
template <class T, int kX, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int kY = 1, int kZ = 1>
class BlockReduce {
 public:
  using TempStorage = details::Storage<T, kX * kY * kZ>;
  explicit BlockReduce(TempStorage& storage) : storage_(storage) {}

  template <class Operator>
  T Reduce(T value, Operator combine, int valid = kX * kY * kZ) {
    const unsigned rank = emulator::thread_rank();
    storage_[static_cast<int>(rank)] = value;
    __syncthreads();
    if (rank) return details::undefined<T>();
    T out = storage_[0];
    for (int i = 1; i < valid; ++i) out = combine(out, storage_[i]);
    return out;
  }
  template <int kItems, class Operator>
  T Reduce(T (&items)[kItems], Operator combine) {
    T own = items[0];
    for (int i = 1; i < kItems; ++i) own = combine(own, items[i]);
    return Reduce(own, combine);
  }
  T Sum(T value) { return Reduce(value, std::plus<>()); }
  T Sum(T value, int valid) { return Reduce(value, std::plus<>(), valid); }
  template <int kItems>
  T Sum(T (&items)[kItems]) { return Reduce(items, std::plus<>()); }

 private:
  TempStorage& storage_;
};

template <class T, int kX, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int kY = 1, int kZ = 1>
class BlockScan {
  static constexpr int kThreads = kX * kY * kZ;

 public:
  using TempStorage = details::Storage<T, kThreads>;
  explicit BlockScan(TempStorage& storage) : storage_(storage) {}

  template <class Operator>
  void InclusiveScan(T in, T& out, Operator combine) { T total; InclusiveScan(in, out, combine, total); }
  template <class Operator>
  void InclusiveScan(T in, T& out, Operator combine, T& total) {
    scan(in, combine);
    out = storage_[rank()];
    total = storage_[kThreads - 1];
  }
  template <class Operator>
  void ExclusiveScan(T in, T& out, T start, Operator combine) { T total; ExclusiveScan(in, out, start, combine, total); }
  template <class Operator>
  void ExclusiveScan(T in, T& out, T start, Operator combine, T& total) {
    scan(in, combine);
    out = rank() ? combine(start, storage_[rank() - 1]) : start;
    total = storage_[kThreads - 1];
  }
  // Without a start value, thread 0's result is undefined.
  template <class Operator>
  void ExclusiveScan(T in, T& out, Operator combine) {
    scan(in, combine);
    out = rank() ? storage_[rank() - 1] : details::undefined<T>();
  }
  void InclusiveSum(T in, T& out) { InclusiveScan(in, out, std::plus<>()); }
  void InclusiveSum(T in, T& out, T& total) { InclusiveScan(in, out, std::plus<>(), total); }
  void ExclusiveSum(T in, T& out) { ExclusiveScan(in, out, T(), std::plus<>()); }
  void ExclusiveSum(T in, T& out, T& total) { ExclusiveScan(in, out, T(), std::plus<>(), total); }

  template <int kItems, class Operator>
  void InclusiveScan(T (&in)[kItems], T (&out)[kItems], Operator combine, T& total) {
    T own[kItems];
    own[0] = in[0];
    for (int i = 1; i < kItems; ++i) own[i] = combine(own[i - 1], in[i]);
    T before;
    const bool first = !rank();
    scan(own[kItems - 1], combine);
    if (!first) before = storage_[rank() - 1];
    total = storage_[kThreads - 1];
    for (int i = 0; i < kItems; ++i) out[i] = first ? own[i] : combine(before, own[i]);
  }
  template <int kItems, class Operator>
  void InclusiveScan(T (&in)[kItems], T (&out)[kItems], Operator combine) { T total; InclusiveScan(in, out, combine, total); }
  template <int kItems, class Operator>
  void ExclusiveScan(T (&in)[kItems], T (&out)[kItems], T start, Operator combine, T& total) {
    T inclusive[kItems];
    InclusiveScan(in, inclusive, combine, total);
    T before = rank() ? combine(start, storage_[rank() - 1]) : start;
    for (int i = 0; i < kItems; ++i) out[i] = i ? combine(start, inclusive[i - 1]) : before;
  }
  template <int kItems, class Operator>
  void ExclusiveScan(T (&in)[kItems], T (&out)[kItems], T start, Operator combine) { T total; ExclusiveScan(in, out, start, combine, total); }
  template <int kItems>
  void InclusiveSum(T (&in)[kItems], T (&out)[kItems]) { InclusiveScan(in, out, std::plus<>()); }
  template <int kItems>
  void InclusiveSum(T (&in)[kItems], T (&out)[kItems], T& total) { InclusiveScan(in, out, std::plus<>(), total); }
  template <int kItems>
  void ExclusiveSum(T (&in)[kItems], T (&out)[kItems]) { ExclusiveScan(in, out, T(), std::plus<>()); }
  template <int kItems>
  void ExclusiveSum(T (&in)[kItems], T (&out)[kItems], T& total) { ExclusiveScan(in, out, T(), std::plus<>(), total); }

 private:
  static int rank() { return static_cast<int>(emulator::thread_rank()); }
  template <class Operator>
  void scan(T in, Operator combine) {
    storage_[rank()] = in;
    __syncthreads();
    if (!rank())
      for (int i = 1; i < kThreads; ++i) storage_[i] = combine(storage_[i - 1], storage_[i]);
    __syncthreads();
  }
  TempStorage& storage_;
};

// Reductions over groups of kLanes lanes. Only the first lane of each group gets the result.
template <class T, int kLanes = 32>
class WarpReduce {
 public:
  struct TempStorage {};
  explicit WarpReduce(TempStorage&) {}

  template <class Operator>
  T Reduce(T value, Operator combine, int valid = kLanes) {
    const cooperative_groups::thread_block_tile<kLanes> tile;
    const emulator::Gathered<T> all(tile.lane_mask(), value);
    if (tile.thread_rank()) return details::undefined<T>();
    T out = value;
    for (int i = 1; i < valid; ++i) out = combine(out, all.of(emulator::lane() + i));
    return out;
  }
  T Sum(T value) { return Reduce(value, std::plus<>()); }
  T Sum(T value, int valid) { return Reduce(value, std::plus<>(), valid); }

  // The lanes are divided into runs, which begin at head flags or end at tail flags. The first lane of a run gets the
  // result.
  template <class Operator, class Flag>
  T HeadSegmentedReduce(T value, Flag head, Operator combine) { return segmented(value, head, combine, 1); }
  template <class Operator, class Flag>
  T TailSegmentedReduce(T value, Flag tail, Operator combine) { return segmented(value, tail, combine, 0); }
  template <class Flag>
  T HeadSegmentedSum(T value, Flag head) { return segmented(value, head, std::plus<>(), 1); }
  template <class Flag>
  T TailSegmentedSum(T value, Flag tail) { return segmented(value, tail, std::plus<>(), 0); }

 private:
  // A run ends before the lane whose lane `ahead` places further is flagged. Flags of other lanes are undefined.
  template <class Flag, class Operator>
  static T segmented(T value, Flag flag, Operator combine, unsigned ahead) {
    const cooperative_groups::thread_block_tile<kLanes> tile;
    const unsigned flags = __ballot_sync(tile.lane_mask(), flag ? 1 : 0), rank = tile.thread_rank();
    const emulator::Gathered<T> all(tile.lane_mask(), value);
    T out = value;
    for (unsigned i = rank; i + 1 < static_cast<unsigned>(kLanes) && !(flags >> (tile.lane_of(0) + i + ahead) & 1); ++i)
      out = combine(out, all.of(tile.lane_of(0) + i + 1));
    return out;
  }
};

template <class T, int kLanes = 32>
class WarpScan {
 public:
  struct TempStorage {};
  explicit WarpScan(TempStorage&) {}

  template <class Operator>
  void InclusiveScan(T in, T& out, Operator combine) { T total; InclusiveScan(in, out, combine, total); }
  template <class Operator>
  void InclusiveScan(T in, T& out, Operator combine, T& total) {
    T before;
    scan(in, combine, before, out, total);
  }
  template <class Operator>
  void ExclusiveScan(T in, T& out, T start, Operator combine) { T total; ExclusiveScan(in, out, start, combine, total); }
  template <class Operator>
  void ExclusiveScan(T in, T& out, T start, Operator combine, T& total) {
    T before, own;
    out = scan(in, combine, before, own, total) ? combine(start, before) : start;
  }
  void InclusiveSum(T in, T& out) { InclusiveScan(in, out, std::plus<>()); }
  void InclusiveSum(T in, T& out, T& total) { InclusiveScan(in, out, std::plus<>(), total); }
  void ExclusiveSum(T in, T& out) { ExclusiveScan(in, out, T(), std::plus<>()); }
  void ExclusiveSum(T in, T& out, T& total) { ExclusiveScan(in, out, T(), std::plus<>(), total); }
  T Broadcast(T value, unsigned source) { return cooperative_groups::thread_block_tile<kLanes>().shfl(value, source); }

 private:
  // Scans a group of lanes. Returns whether the group has lanes before the calling one, so that `before` is valid.
  template <class Operator>
  static bool scan(T in, Operator combine, T& before, T& inclusive, T& total) {
    const cooperative_groups::thread_block_tile<kLanes> tile;
    const emulator::Gathered<T> all(tile.lane_mask(), in);
    const unsigned first = tile.lane_of(0), rank = tile.thread_rank();
    T running = all.of(first);
    if (!rank) inclusive = running;
    for (unsigned i = 1; i < static_cast<unsigned>(kLanes) && all.lanes() >> (first + i) & 1; ++i) {
      if (i == rank) before = running;
      running = combine(running, all.of(first + i));
      if (i == rank) inclusive = running;
    }
    total = running;
    return rank;
  }
};

}  // namespace cub
