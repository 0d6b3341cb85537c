// The collectives of cub that move or sort the items of a block. A block's items are in blocked order if each thread has
// consecutive ones, and in striped order if consecutive threads have them.
#pragma once
#include "emulator/cub_block.h"
#include "emulator/cub_radix.h"

namespace cub {

enum BlockLoadAlgorithm { BLOCK_LOAD_DIRECT, BLOCK_LOAD_STRIPED, BLOCK_LOAD_VECTORIZE, BLOCK_LOAD_TRANSPOSE, BLOCK_LOAD_WARP_TRANSPOSE, BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED };
enum BlockStoreAlgorithm { BLOCK_STORE_DIRECT, BLOCK_STORE_STRIPED, BLOCK_STORE_VECTORIZE, BLOCK_STORE_TRANSPOSE, BLOCK_STORE_WARP_TRANSPOSE, BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED };

template <class T, class From, int kItems>
void LoadDirectBlocked(int thread, From from, T (&items)[kItems]) {
  for (int i = 0; i < kItems; ++i) items[i] = from[thread * kItems + i];
}
template <class T, class From, int kItems>
void LoadDirectBlocked(int thread, From from, T (&items)[kItems], int valid) {
  for (int i = 0; i < kItems; ++i)
    if (thread * kItems + i < valid) items[i] = from[thread * kItems + i];
}
template <class T, class Default, class From, int kItems>
void LoadDirectBlocked(int thread, From from, T (&items)[kItems], int valid, Default other) {
  for (int i = 0; i < kItems; ++i) items[i] = thread * kItems + i < valid ? static_cast<T>(from[thread * kItems + i]) : static_cast<T>(other);
}
template <int kThreads, class T, class From, int kItems>
void LoadDirectStriped(int thread, From from, T (&items)[kItems]) {
  for (int i = 0; i < kItems; ++i) items[i] = from[i * kThreads + thread];
}
template <int kThreads, class T, class From, int kItems>
void LoadDirectStriped(int thread, From from, T (&items)[kItems], int valid) {
  for (int i = 0; i < kItems; ++i)
    if (i * kThreads + thread < valid) items[i] = from[i * kThreads + thread];
}
template <int kThreads, class T, class Default, class From, int kItems>
void LoadDirectStriped(int thread, From from, T (&items)[kItems], int valid, Default other) {
  for (int i = 0; i < kItems; ++i) items[i] = i * kThreads + thread < valid ? static_cast<T>(from[i * kThreads + thread]) : static_cast<T>(other);
}
template <class T, class To, int kItems>
void StoreDirectBlocked(int thread, To to, T (&items)[kItems], int valid = 0x7FFFFFFF) {
  for (int i = 0; i < kItems; ++i)
    if (thread * kItems + i < valid) to[thread * kItems + i] = items[i];
}
template <int kThreads, class T, class To, int kItems>
void StoreDirectStriped(int thread, To to, T (&items)[kItems], int valid = 0x7FFFFFFF) {
  for (int i = 0; i < kItems; ++i)
    if (i * kThreads + thread < valid) to[i * kThreads + thread] = items[i];
}

// Moves items between the threads of a block through shared memory.
template <class T, int kX, int kItems, bool = false, int kY = 1, int kZ = 1>
class BlockExchange {
  static constexpr int kThreads = kX * kY * kZ;

 public:
  using TempStorage = details::Storage<T, kThreads * kItems>;
  explicit BlockExchange(TempStorage& storage) : storage_(storage) {}

  template <class Out>
  void StripedToBlocked(const T (&in)[kItems], Out (&out)[kItems]) { move(in, out, striped, blocked); }
  void StripedToBlocked(T (&items)[kItems]) { move(items, items, striped, blocked); }
  template <class Out>
  void BlockedToStriped(const T (&in)[kItems], Out (&out)[kItems]) { move(in, out, blocked, striped); }
  void BlockedToStriped(T (&items)[kItems]) { move(items, items, blocked, striped); }
  template <class Out, class Offset>
  void ScatterToBlocked(const T (&in)[kItems], Out (&out)[kItems], Offset (&ranks)[kItems]) { move(in, out, [&](int i) { return static_cast<int>(ranks[i]); }, blocked); }
  template <class Offset>
  void ScatterToBlocked(T (&items)[kItems], Offset (&ranks)[kItems]) { ScatterToBlocked(items, items, ranks); }
  template <class Out, class Offset>
  void ScatterToStriped(const T (&in)[kItems], Out (&out)[kItems], Offset (&ranks)[kItems]) { move(in, out, [&](int i) { return static_cast<int>(ranks[i]); }, striped); }
  template <class Offset>
  void ScatterToStriped(T (&items)[kItems], Offset (&ranks)[kItems]) { ScatterToStriped(items, items, ranks); }

 private:
  static int blocked(int i) { return static_cast<int>(emulator::thread_rank()) * kItems + i; }
  static int striped(int i) { return i * kThreads + static_cast<int>(emulator::thread_rank()); }
  template <class Out, class Before, class After>
  void move(const T (&in)[kItems], Out (&out)[kItems], Before before, After after) {
    for (int i = 0; i < kItems; ++i) storage_[before(i)] = in[i];
    __syncthreads();
    for (int i = 0; i < kItems; ++i) out[i] = storage_[after(i)];
  }
  TempStorage& storage_;
};

namespace details {
// The storage of the algorithms that need none.
struct NoStorage {};
template <class T, int kX, int kItems, int kY, int kZ, bool kTransposes>
using TileStorage = std::conditional_t<kTransposes, typename BlockExchange<T, kX, kItems, false, kY, kZ>::TempStorage, NoStorage>;
}  // namespace details

template <class T, int kX, int kItems, BlockLoadAlgorithm kAlgorithm = BLOCK_LOAD_DIRECT, int kY = 1, int kZ = 1>
class BlockLoad {
  static constexpr int kThreads = kX * kY * kZ;
  static constexpr bool kTransposes = kAlgorithm >= BLOCK_LOAD_TRANSPOSE;

 public:
  using TempStorage = details::TileStorage<T, kX, kItems, kY, kZ, kTransposes>;
  explicit BlockLoad(TempStorage& storage) : storage_(storage) {}

  // `more` is the number of valid items, and a value for the others.
  template <class From, class... More>
  void Load(From from, T (&items)[kItems], More... more) {
    const int thread = static_cast<int>(emulator::thread_rank());
    if constexpr (kTransposes || kAlgorithm == BLOCK_LOAD_STRIPED) LoadDirectStriped<kThreads>(thread, from, items, more...);
    else LoadDirectBlocked(thread, from, items, more...);
    if constexpr (kTransposes) BlockExchange<T, kX, kItems, false, kY, kZ>(storage_).StripedToBlocked(items);
  }

 private:
  TempStorage& storage_;
};

template <class T, int kX, int kItems, BlockStoreAlgorithm kAlgorithm = BLOCK_STORE_DIRECT, int kY = 1, int kZ = 1>
class BlockStore {
  static constexpr int kThreads = kX * kY * kZ;
  static constexpr bool kTransposes = kAlgorithm >= BLOCK_STORE_TRANSPOSE;

 public:
  using TempStorage = details::TileStorage<T, kX, kItems, kY, kZ, kTransposes>;
  explicit BlockStore(TempStorage& storage) : storage_(storage) {}

  template <class To>
  void Store(To to, T (&items)[kItems], int valid = 0x7FFFFFFF) {
    const int thread = static_cast<int>(emulator::thread_rank());
    if constexpr (kTransposes) BlockExchange<T, kX, kItems, false, kY, kZ>(storage_).BlockedToStriped(items);
    if constexpr (kTransposes || kAlgorithm == BLOCK_STORE_STRIPED) StoreDirectStriped<kThreads>(thread, to, items, valid);
    else StoreDirectBlocked(thread, to, items, valid);
  }

 private:
  TempStorage& storage_;
};

namespace details {

// Sorts the pairs of a block: thread 0 finds their order in shared memory.
template <class Key, int kThreads, int kItems, class Value>
class BlockSort {
  static constexpr int kCount = kThreads * kItems;
  static constexpr bool kPairs = !std::is_same_v<Value, NullType>;

 public:
  struct TempStorage {
    Storage<Key, kCount> keys;
    Storage<Value, kPairs ? kCount : 1> values;
    Storage<unsigned short, kCount> order;
  };
  explicit BlockSort(TempStorage& storage) : storage_(storage) {}

 protected:
  // `less(a, b)` compares keys; equal ones stay in order. `place(i)` is the place, after the sort, of the thread's item
  // i.
  template <class Less, class Place, class Values>
  void sort(Key (&keys)[kItems], Values values, Less less, Place place) {
    const int rank = static_cast<int>(emulator::thread_rank());
    for (int i = 0; i < kItems; ++i) {
      storage_.keys[rank * kItems + i] = keys[i];
      if constexpr (kPairs) storage_.values[rank * kItems + i] = (*values)[i];
    }
    __syncthreads();
    if (!rank) {
      for (int i = 0; i < kCount; ++i) storage_.order[i] = static_cast<unsigned short>(i);
      std::sort(&storage_.order[0], &storage_.order[0] + kCount, [&](unsigned short a, unsigned short b) {
        Key &x = storage_.keys[a], &y = storage_.keys[b];
        return less(x, y) || (!less(y, x) && a < b);
      });
    }
    __syncthreads();
    for (int i = 0; i < kItems; ++i) {
      const int from = storage_.order[place(rank, i)];
      keys[i] = storage_.keys[from];
      if constexpr (kPairs) (*values)[i] = storage_.values[from];
    }
  }
  static int blocked(int rank, int i) { return rank * kItems + i; }
  static int striped(int rank, int i) { return i * kThreads + rank; }

 private:
  TempStorage& storage_;
};

}  // namespace details

template <class Key, int kX, int kItems, class Value = NullType, int = 4, bool = true, BlockScanAlgorithm = BLOCK_SCAN_WARP_SCANS, int = 0, int kY = 1, int kZ = 1>
class BlockRadixSort : details::BlockSort<Key, kX * kY * kZ, kItems, Value> {
  using Base = details::BlockSort<Key, kX * kY * kZ, kItems, Value>;
  static constexpr int kBits = 8 * sizeof(Key);

 public:
  using typename Base::TempStorage;
  using Base::Base;

#define EMULATOR_SORT(NAME, DESCENDING, PLACE)                                                                                    \
  void NAME(Key (&keys)[kItems], int begin = 0, int end = kBits) { run(keys, static_cast<NullType*>(nullptr), DESCENDING, begin, end, Base::PLACE); } \
  void NAME(Key (&keys)[kItems], Value (&values)[kItems], int begin = 0, int end = kBits) { run(keys, &values, DESCENDING, begin, end, Base::PLACE); }
  EMULATOR_SORT(Sort, false, blocked)
  EMULATOR_SORT(SortDescending, true, blocked)
  EMULATOR_SORT(SortBlockedToStriped, false, striped)
  EMULATOR_SORT(SortDescendingBlockedToStriped, true, striped)
#undef EMULATOR_SORT

 private:
  template <class Values, class Place>
  void run(Key (&keys)[kItems], Values values, bool descending, int begin, int end, Place place) {
    static_assert(std::is_same_v<Values, NullType*> == std::is_same_v<Value, NullType>, "a sort of keys alone, or of pairs");
    this->sort(keys, values, [=](const Key& a, const Key& b) { return details::radix_bits(a, descending, begin, end) < details::radix_bits(b, descending, begin, end); }, place);
  }
};

template <class Key, int kX, int kItems, class Value = NullType, int kY = 1, int kZ = 1>
class BlockMergeSort : details::BlockSort<Key, kX * kY * kZ, kItems, Value> {
  using Base = details::BlockSort<Key, kX * kY * kZ, kItems, Value>;

 public:
  using typename Base::TempStorage;
  using Base::Base;

#define EMULATOR_SORT(NAME)                                                                                                \
  template <class Less>                                                                                                    \
  void NAME(Key (&keys)[kItems], Less less) { run(keys, static_cast<NullType*>(nullptr), less); }                          \
  template <class Less>                                                                                                    \
  void NAME(Key (&keys)[kItems], Value (&values)[kItems], Less less) { run(keys, &values, less); }                         \
  template <class Less>                                                                                                    \
  void NAME(Key (&keys)[kItems], Less less, int valid, Key other) { fill(keys, valid, other), NAME(keys, less); }          \
  template <class Less>                                                                                                    \
  void NAME(Key (&keys)[kItems], Value (&values)[kItems], Less less, int valid, Key other) { fill(keys, valid, other), NAME(keys, values, less); }
  EMULATOR_SORT(Sort)
  EMULATOR_SORT(StableSort)
#undef EMULATOR_SORT

 private:
  static void fill(Key (&keys)[kItems], int valid, const Key& other) {
    for (int i = 0; i < kItems; ++i)
      if (static_cast<int>(emulator::thread_rank()) * kItems + i >= valid) keys[i] = other;
  }
  template <class Values, class Less>
  void run(Key (&keys)[kItems], Values values, Less less) {
    this->sort(keys, values, less, Base::blocked);
  }
};

// Flags the items that begin or end a run. `differs(a, b)` is called with neighbours.
template <class T, int kX, int kY = 1, int kZ = 1>
class BlockDiscontinuity {
  static constexpr int kThreads = kX * kY * kZ;

 public:
  struct TempStorage {
    details::Storage<T, kThreads> first, last;
  };
  explicit BlockDiscontinuity(TempStorage& storage) : storage_(storage) {}

  template <int kItems, class Flag, class Differs>
  void FlagHeads(Flag (&flags)[kItems], T (&items)[kItems], Differs differs) { heads(flags, items, differs, static_cast<const T*>(nullptr)); }
  template <int kItems, class Flag, class Differs>
  void FlagHeads(Flag (&flags)[kItems], T (&items)[kItems], Differs differs, T before) { heads(flags, items, differs, &before); }
  template <int kItems, class Flag, class Differs>
  void FlagTails(Flag (&flags)[kItems], T (&items)[kItems], Differs differs) { tails(flags, items, differs, static_cast<const T*>(nullptr)); }
  template <int kItems, class Flag, class Differs>
  void FlagTails(Flag (&flags)[kItems], T (&items)[kItems], Differs differs, T after) { tails(flags, items, differs, &after); }

 private:
  static int rank() { return static_cast<int>(emulator::thread_rank()); }
  template <int kItems>
  void share(T (&items)[kItems]) {
    storage_.first[rank()] = items[0];
    storage_.last[rank()] = items[kItems - 1];
    __syncthreads();
  }
  template <int kItems, class Flag, class Differs>
  void heads(Flag (&flags)[kItems], T (&items)[kItems], Differs differs, const T* before) {
    share(items);
    for (int i = kItems - 1; i > 0; --i) flags[i] = static_cast<Flag>(differs(items[i - 1], items[i]));
    flags[0] = static_cast<Flag>(rank() ? differs(storage_.last[rank() - 1], items[0]) : !before || differs(*before, items[0]));
  }
  template <int kItems, class Flag, class Differs>
  void tails(Flag (&flags)[kItems], T (&items)[kItems], Differs differs, const T* after) {
    share(items);
    for (int i = 0; i < kItems - 1; ++i) flags[i] = static_cast<Flag>(differs(items[i], items[i + 1]));
    T& own = items[kItems - 1];
    flags[kItems - 1] = static_cast<Flag>(rank() < kThreads - 1 ? differs(own, storage_.first[rank() + 1]) : !after || differs(own, *after));
  }
  TempStorage& storage_;
};

enum BlockHistogramAlgorithm { BLOCK_HISTO_SORT, BLOCK_HISTO_ATOMIC };
template <class T, int kX, int kItems, int kBins, BlockHistogramAlgorithm = BLOCK_HISTO_SORT, int kY = 1, int kZ = 1>
class BlockHistogram {
 public:
  using TempStorage = details::NoStorage;
  explicit BlockHistogram(TempStorage&) {}

  template <class Counter>
  void InitHistogram(Counter (&counts)[kBins]) {
    for (int b = static_cast<int>(emulator::thread_rank()); b < kBins; b += kX * kY * kZ) counts[b] = 0;
  }
  template <class Counter>
  void Composite(T (&items)[kItems], Counter (&counts)[kBins]) {
    for (const T& item : items) atomicAdd(&counts[item], Counter{1});
  }
  template <class Counter>
  void Histogram(T (&items)[kItems], Counter (&counts)[kBins]) {
    InitHistogram(counts);
    __syncthreads();
    Composite(items, counts);
  }
};

}  // namespace cub
