// The device-wide algorithms of cub. They run on the host, one element after the other. Each has a first call without
// storage, which gives the bytes of storage that the second call needs, as with cub.
#pragma once
#include <cstdint>
#include <iterator>
#include <limits>
#include <type_traits>
#include <vector>

#include "emulator/cub_block.h"
#include "emulator/cub_radix.h"
#include "emulator/launch.h"

namespace cub {

// Two buffers of one size: a sort leaves its result in `Current()`.
template <class T>
struct DoubleBuffer {
  T* d_buffers[2] = {nullptr, nullptr};
  int selector = 0;
  DoubleBuffer() = default;
  DoubleBuffer(T* current, T* alternate) : d_buffers{current, alternate} {}
  T* Current() { return d_buffers[selector]; }
  T* Alternate() { return d_buffers[selector ^ 1]; }
};

namespace details {

template <class It>
using ValueOf = typename std::iterator_traits<It>::value_type;
// The type of a sum: that of the start value combined with an element.
template <class Operator, class Init, class T>
using Accumulated = std::remove_cvref_t<std::invoke_result_t<Operator, Init, T>>;

template <class Work>
cudaError_t in_two_phases(void* storage, std::size_t& bytes, std::size_t needed, cudaStream_t stream, Work work) {
  if (!storage) {
    bytes = needed;
    return cudaSuccess;
  }
  if (bytes < needed) return cudaErrorInvalidValue;
  return emulator::launch_library(stream, work);
}
constexpr std::size_t kLittle = 256;  // the storage of most algorithms; cub's own need depends on the device

// Returns the combination of elements `first` to `last`, by halves: the rounding error is as small as that of a GPU's.
template <class T, class At, class Operator>
T combined(const At& at, std::size_t first, std::size_t last, Operator& combine) {
  if (last - first == 1) return static_cast<T>(at(first));
  const std::size_t middle = first + (last - first) / 2;
  return static_cast<T>(combine(combined<T>(at, first, middle, combine), combined<T>(at, middle, last, combine)));
}
template <class T, class At, class Operator>
T combined(const At& at, std::size_t first, std::size_t last, Operator& combine, T start) {
  return first == last ? start : static_cast<T>(combine(start, combined<T>(at, first, last, combine)));
}

// Scans `count` elements in tiles, and calls give(i, value). In an exclusive scan, the value does not include element i.
template <class T, class At, class Give, class Operator>
void scan(const At& at, std::size_t count, Operator& combine, const T* start, bool exclusive, Give give) {
  constexpr std::size_t kTile = 256;
  T before = start ? *start : T{};
  bool any = start;
  for (std::size_t first = 0; first < count; first += kTile) {
    T own{};
    for (std::size_t i = first; i < count && i < first + kTile; ++i) {
      const T value = static_cast<T>(at(i));
      const T earlier = i == first ? before : any ? static_cast<T>(combine(before, own)) : own;
      own = i == first ? value : static_cast<T>(combine(own, value));
      give(i, exclusive ? earlier : any ? static_cast<T>(combine(before, own)) : own);
    }
    before = any ? static_cast<T>(combine(before, own)) : own;
    any = true;
  }
}

// The type of a sum that a device-wide reduction stores by `Out`.
template <class Out, class In>
using SumOf = std::conditional_t<std::is_void_v<ValueOf<Out>>, ValueOf<In>, ValueOf<Out>>;
template <class It>
using LimitsOf = std::numeric_limits<ValueOf<It>>;

}  // namespace details

struct DeviceReduce {
  template <class In, class Out, class N, class Operator, class Init>
  static cudaError_t Reduce(void* storage, std::size_t& bytes, In in, Out out, N n, Operator combine, Init start, cudaStream_t stream = nullptr) {
    return TransformReduce(storage, bytes, in, out, n, combine, std::identity(), start, stream);
  }
  template <class In, class Out, class N, class Operator, class Transform, class Init>
  static cudaError_t TransformReduce(void* storage, std::size_t& bytes, In in, Out out, N n, Operator combine, Transform transform, Init start, cudaStream_t stream = nullptr) {
    return details::in_two_phases(storage, bytes, details::kLittle, stream, [=]() mutable {
      using T = details::Accumulated<Operator, Init, std::remove_cvref_t<decltype(transform(in[0]))>>;
      *out = details::combined<T>([&](std::size_t i) { return transform(in[i]); }, 0, n, combine, static_cast<T>(start));
      emulator::wrote(out, 1);
    });
  }
  template <class In, class Out, class N>
  static cudaError_t Sum(void* storage, std::size_t& bytes, In in, Out out, N n, cudaStream_t stream = nullptr) {
    return Reduce(storage, bytes, in, out, n, std::plus<>(), details::SumOf<Out, In>{}, stream);
  }
  template <class In, class Out, class N>
  static cudaError_t Max(void* storage, std::size_t& bytes, In in, Out out, N n, cudaStream_t stream = nullptr) {
    return Reduce(storage, bytes, in, out, n, cuda::maximum<>(), details::LimitsOf<In>::lowest(), stream);
  }
  template <class In, class Out, class N>
  static cudaError_t Min(void* storage, std::size_t& bytes, In in, Out out, N n, cudaStream_t stream = nullptr) {
    return Reduce(storage, bytes, in, out, n, cuda::minimum<>(), details::LimitsOf<In>::max(), stream);
  }
  // The place is that of the first extreme element.
  template <class In, class Out, class Place>
  static cudaError_t ArgMax(void* storage, std::size_t& bytes, In in, Out out, Place place, std::int64_t n, cudaStream_t stream = nullptr) {
    return extreme(storage, bytes, in, out, place, n, stream, [](const auto& a, const auto& b) { return b < a; });
  }
  template <class In, class Out, class Place>
  static cudaError_t ArgMin(void* storage, std::size_t& bytes, In in, Out out, Place place, std::int64_t n, cudaStream_t stream = nullptr) {
    return extreme(storage, bytes, in, out, place, n, stream, [](const auto& a, const auto& b) { return a < b; });
  }
  template <class In, class Out>
  static cudaError_t ArgMax(void* storage, std::size_t& bytes, In in, Out out, int n, cudaStream_t stream = nullptr) {
    return extreme(storage, bytes, in, &out->value, &out->key, n, stream, [](const auto& a, const auto& b) { return b < a; });
  }
  template <class In, class Out>
  static cudaError_t ArgMin(void* storage, std::size_t& bytes, In in, Out out, int n, cudaStream_t stream = nullptr) {
    return extreme(storage, bytes, in, &out->value, &out->key, n, stream, [](const auto& a, const auto& b) { return a < b; });
  }
  template <class Keys, class UniqueOut, class Values, class Out, class Count, class Operator, class N>
  static cudaError_t ReduceByKey(void* storage, std::size_t& bytes, Keys keys, UniqueOut unique, Values values, Out out, Count runs, Operator combine, N n, cudaStream_t stream = nullptr) {
    return details::in_two_phases(storage, bytes, details::kLittle, stream, [=]() mutable {
      using T = details::ValueOf<Values>;
      N count = 0;
      for (N first = 0, last; first < n; first = last, ++count) {
        for (last = first + 1; last < n && keys[first] == keys[last];) ++last;
        unique[count] = keys[first];
        out[count] = details::combined<T>([&](std::size_t i) { return values[i]; }, first, last, combine);
      }
      *runs = count;
      emulator::wrote(unique, count), emulator::wrote(out, count), emulator::wrote(runs, 1);
    });
  }

 private:
  template <class In, class Out, class Place, class Before>
  static cudaError_t extreme(void* storage, std::size_t& bytes, In in, Out out, Place place, std::int64_t n, cudaStream_t stream, Before before) {
    return details::in_two_phases(storage, bytes, details::kLittle, stream, [=] {
      if (n <= 0) return;
      std::int64_t best = 0;
      for (std::int64_t i = 1; i < n; ++i)
        if (before(in[i], in[best])) best = i;
      *out = in[best];
      *place = static_cast<std::remove_reference_t<decltype(*place)>>(best);
      emulator::wrote(out, 1), emulator::wrote(place, 1);
    });
  }
};

struct DeviceScan {
  template <class In, class Out, class Operator, class Init, class N>
  static cudaError_t ExclusiveScan(void* storage, std::size_t& bytes, In in, Out out, Operator combine, Init start, N n, cudaStream_t stream = nullptr) {
    return run<details::Accumulated<Operator, Init, details::ValueOf<In>>>(storage, bytes, in, out, combine, &start, true, n, stream);
  }
  template <class In, class Out, class Operator, class Init, class N>
  static cudaError_t InclusiveScanInit(void* storage, std::size_t& bytes, In in, Out out, Operator combine, Init start, N n, cudaStream_t stream = nullptr) {
    return run<details::Accumulated<Operator, Init, details::ValueOf<In>>>(storage, bytes, in, out, combine, &start, false, n, stream);
  }
  template <class In, class Out, class Operator, class N>
  static cudaError_t InclusiveScan(void* storage, std::size_t& bytes, In in, Out out, Operator combine, N n, cudaStream_t stream = nullptr) {
    using T = details::ValueOf<In>;
    return run<T>(storage, bytes, in, out, combine, static_cast<T*>(nullptr), false, n, stream);
  }
  template <class In, class Out, class N>
  static cudaError_t ExclusiveSum(void* storage, std::size_t& bytes, In in, Out out, N n, cudaStream_t stream = nullptr) {
    return ExclusiveScan(storage, bytes, in, out, std::plus<>(), details::ValueOf<In>{}, n, stream);
  }
  template <class In, class Out, class N>
  static cudaError_t InclusiveSum(void* storage, std::size_t& bytes, In in, Out out, N n, cudaStream_t stream = nullptr) {
    return InclusiveScan(storage, bytes, in, out, std::plus<>(), n, stream);
  }
  template <class Data, class N>
    requires std::is_integral_v<N>
  static cudaError_t ExclusiveSum(void* storage, std::size_t& bytes, Data data, N n, cudaStream_t stream = nullptr) { return ExclusiveSum(storage, bytes, data, data, n, stream); }
  template <class Data, class N>
    requires std::is_integral_v<N>
  static cudaError_t InclusiveSum(void* storage, std::size_t& bytes, Data data, N n, cudaStream_t stream = nullptr) { return InclusiveSum(storage, bytes, data, data, n, stream); }

  template <class Keys, class In, class Out, class Operator, class Init, class N, class Equal = std::equal_to<>>
  static cudaError_t ExclusiveScanByKey(void* storage, std::size_t& bytes, Keys keys, In in, Out out, Operator combine, Init start, N n, Equal equal = {}, cudaStream_t stream = nullptr) {
    return by_key<details::Accumulated<Operator, Init, details::ValueOf<In>>>(storage, bytes, keys, in, out, combine, &start, n, equal, stream);
  }
  template <class Keys, class In, class Out, class Operator, class N, class Equal = std::equal_to<>>
  static cudaError_t InclusiveScanByKey(void* storage, std::size_t& bytes, Keys keys, In in, Out out, Operator combine, N n, Equal equal = {}, cudaStream_t stream = nullptr) {
    using T = details::ValueOf<In>;
    return by_key<T>(storage, bytes, keys, in, out, combine, static_cast<T*>(nullptr), n, equal, stream);
  }
  template <class Keys, class In, class Out, class N, class Equal = std::equal_to<>>
  static cudaError_t ExclusiveSumByKey(void* storage, std::size_t& bytes, Keys keys, In in, Out out, N n, Equal equal = {}, cudaStream_t stream = nullptr) {
    return ExclusiveScanByKey(storage, bytes, keys, in, out, std::plus<>(), details::ValueOf<In>{}, n, equal, stream);
  }
  template <class Keys, class In, class Out, class N, class Equal = std::equal_to<>>
  static cudaError_t InclusiveSumByKey(void* storage, std::size_t& bytes, Keys keys, In in, Out out, N n, Equal equal = {}, cudaStream_t stream = nullptr) {
    return InclusiveScanByKey(storage, bytes, keys, in, out, std::plus<>(), n, equal, stream);
  }

 private:
  template <class T, class In, class Out, class Operator, class Init, class N>
  static cudaError_t run(void* storage, std::size_t& bytes, In in, Out out, Operator combine, const Init* start, bool exclusive, N n, cudaStream_t stream) {
    const T first = start ? static_cast<T>(*start) : T{};
    const bool starts = start;
    return details::in_two_phases(storage, bytes, details::kLittle, stream, [=]() mutable {
      details::scan<T>([&](std::size_t i) { return in[i]; }, n, combine, starts ? &first : nullptr, exclusive, [&](std::size_t i, const T& value) { out[i] = value; });
      emulator::wrote(out, n);
    });
  }
  // With a start value, the scan is exclusive.
  template <class T, class Keys, class In, class Out, class Operator, class Init, class N, class Equal>
  static cudaError_t by_key(void* storage, std::size_t& bytes, Keys keys, In in, Out out, Operator combine, const Init* start, N n, Equal equal, cudaStream_t stream) {
    const T begin = start ? static_cast<T>(*start) : T{};
    const bool starts = start;
    return details::in_two_phases(storage, bytes, details::kLittle, stream, [=]() mutable {
      for (N first = 0, last; first < n; first = last) {
        for (last = first + 1; last < n && equal(keys[last - 1], keys[last]);) ++last;
        details::scan<T>([&](std::size_t i) { return in[first + i]; }, last - first, combine, starts ? &begin : nullptr, starts, [&](std::size_t i, const T& value) { out[first + i] = value; });
      }
      emulator::wrote(out, n);
    });
  }
};

namespace details {

// The sorts of whole arrays and of segments, of keys alone (values are a null NullType*) or of pairs.
template <class Key, class Value, class Order>
void sort_range(const Key* keys, Key* keys_out, const Value* values, Value* values_out, std::size_t first, std::size_t count, Order order_of) {
  const auto order = order_of(keys + first, count);
  if constexpr (!std::is_same_v<Value, NullType>) {
    put_in_order(order, values + first, values_out + first);
    emulator::wrote(values_out + first, count);
  }
  put_in_order(order, keys + first, keys_out + first);
  emulator::wrote(keys_out + first, count);
}

template <class Key, class Value, class N>
cudaError_t radix_sort(void* storage, std::size_t& bytes, const Key* keys, Key* keys_out, const Value* values, Value* values_out, N n, bool descending, int begin, int end, cudaStream_t stream) {
  const std::size_t count = n > 0 ? static_cast<std::size_t>(n) : 0, needed = kLittle + count * (sizeof(Key) + (std::is_same_v<Value, NullType> ? 0 : sizeof(Value)));
  return in_two_phases(storage, bytes, needed, stream, [=] {
    sort_range(keys, keys_out, values, values_out, 0, count, [=](const Key* all, std::size_t size) { return radix_order(all, size, descending, begin, end); });
  });
}

template <class Key, class Value, class Begin, class End>
cudaError_t segmented_sort(void* storage, std::size_t& bytes, const Key* keys, Key* keys_out, const Value* values, Value* values_out, std::int64_t segments, Begin begins, End ends, bool descending, int begin, int end,
                           cudaStream_t stream) {
  return in_two_phases(storage, bytes, kLittle, stream, [=] {
    for (std::int64_t s = 0; s < segments; ++s)
      if (begins[s] < ends[s])
        sort_range(keys, keys_out, values, values_out, begins[s], ends[s] - begins[s], [=](const Key* all, std::size_t size) { return radix_order(all, size, descending, begin, end); });
  });
}

// A sort with double buffers leaves the result in the other buffers.
template <class Key, class Value, class Sort>
cudaError_t in_buffers(const void* storage, DoubleBuffer<Key>& keys, DoubleBuffer<Value>* values, Sort sort) {
  const cudaError_t error = sort(keys.Current(), keys.Alternate(), values ? values->Current() : nullptr, values ? values->Alternate() : nullptr);
  if (storage && !error) {
    keys.selector ^= 1;
    if (values) values->selector ^= 1;
  }
  return error;
}
template <class T>
constexpr int kAllBits = 8 * sizeof(T);
inline constexpr NullType* kNoValues = nullptr;

}  // namespace details

struct DeviceRadixSort {
#define EMULATOR_SORTS(SUFFIX, DESCENDING)                                                                                                                                     \
  template <class Key, class Value, class N>                                                                                                                                   \
  static cudaError_t SortPairs##SUFFIX(void* storage, std::size_t& bytes, const Key* keys, Key* keys_out, const Value* values, Value* values_out, N n, int begin = 0, int end = details::kAllBits<Key>, \
                                       cudaStream_t stream = nullptr) {                                                                                                        \
    return details::radix_sort(storage, bytes, keys, keys_out, values, values_out, n, DESCENDING, begin, end, stream);                                                         \
  }                                                                                                                                                                            \
  template <class Key, class N>                                                                                                                                                \
  static cudaError_t SortKeys##SUFFIX(void* storage, std::size_t& bytes, const Key* keys, Key* keys_out, N n, int begin = 0, int end = details::kAllBits<Key>, cudaStream_t stream = nullptr) { \
    return details::radix_sort(storage, bytes, keys, keys_out, details::kNoValues, details::kNoValues, n, DESCENDING, begin, end, stream);                                     \
  }                                                                                                                                                                            \
  template <class Key, class Value, class N>                                                                                                                                   \
  static cudaError_t SortPairs##SUFFIX(void* storage, std::size_t& bytes, DoubleBuffer<Key>& keys, DoubleBuffer<Value>& values, N n, int begin = 0, int end = details::kAllBits<Key>, \
                                       cudaStream_t stream = nullptr) {                                                                                                        \
    return details::in_buffers(storage, keys, &values, [&](Key* from, Key* to, Value* v, Value* w) { return SortPairs##SUFFIX(storage, bytes, from, to, v, w, n, begin, end, stream); }); \
  }                                                                                                                                                                            \
  template <class Key, class N>                                                                                                                                                \
  static cudaError_t SortKeys##SUFFIX(void* storage, std::size_t& bytes, DoubleBuffer<Key>& keys, N n, int begin = 0, int end = details::kAllBits<Key>, cudaStream_t stream = nullptr) { \
    return details::in_buffers(storage, keys, static_cast<DoubleBuffer<NullType>*>(nullptr), [&](Key* from, Key* to, NullType*, NullType*) { return SortKeys##SUFFIX(storage, bytes, from, to, n, begin, end, stream); }); \
  }
  EMULATOR_SORTS(, false)
  EMULATOR_SORTS(Descending, true)
#undef EMULATOR_SORTS
};

#define EMULATOR_SEGMENTED(NAME, SUFFIX, DESCENDING, BITS, BEGIN, END)                                                                                                         \
  template <class Key, class Value, class N, class Begin, class End>                                                                                                           \
  static cudaError_t NAME##Pairs##SUFFIX(void* storage, std::size_t& bytes, const Key* keys, Key* keys_out, const Value* values, Value* values_out, N, std::int64_t segments, Begin begins, End ends BITS, \
                                         cudaStream_t stream = nullptr) {                                                                                                      \
    return details::segmented_sort(storage, bytes, keys, keys_out, values, values_out, segments, begins, ends, DESCENDING, BEGIN, END, stream);                                \
  }                                                                                                                                                                            \
  template <class Key, class N, class Begin, class End>                                                                                                                        \
  static cudaError_t NAME##Keys##SUFFIX(void* storage, std::size_t& bytes, const Key* keys, Key* keys_out, N, std::int64_t segments, Begin begins, End ends BITS, cudaStream_t stream = nullptr) { \
    return details::segmented_sort(storage, bytes, keys, keys_out, details::kNoValues, details::kNoValues, segments, begins, ends, DESCENDING, BEGIN, END, stream);            \
  }
#define EMULATOR_BITS , int begin = 0, int end = details::kAllBits<Key>
struct DeviceSegmentedRadixSort {
  EMULATOR_SEGMENTED(Sort, , false, EMULATOR_BITS, begin, end)
  EMULATOR_SEGMENTED(Sort, Descending, true, EMULATOR_BITS, begin, end)
};
#undef EMULATOR_BITS
#define EMULATOR_BITS
struct DeviceSegmentedSort {
  EMULATOR_SEGMENTED(Sort, , false, EMULATOR_BITS, 0, details::kAllBits<Key>)
  EMULATOR_SEGMENTED(Sort, Descending, true, EMULATOR_BITS, 0, details::kAllBits<Key>)
  EMULATOR_SEGMENTED(StableSort, , false, EMULATOR_BITS, 0, details::kAllBits<Key>)
  EMULATOR_SEGMENTED(StableSort, Descending, true, EMULATOR_BITS, 0, details::kAllBits<Key>)
};
#undef EMULATOR_BITS
#undef EMULATOR_SEGMENTED

struct DeviceMergeSort {
  template <class Keys, class N, class Less>
  static cudaError_t SortKeys(void* storage, std::size_t& bytes, Keys keys, N n, Less less, cudaStream_t stream = nullptr) { return SortKeysCopy(storage, bytes, keys, keys, n, less, stream); }
  template <class Keys, class N, class Less>
  static cudaError_t StableSortKeys(void* storage, std::size_t& bytes, Keys keys, N n, Less less, cudaStream_t stream = nullptr) { return SortKeysCopy(storage, bytes, keys, keys, n, less, stream); }
  template <class Keys, class Values, class N, class Less>
  static cudaError_t SortPairs(void* storage, std::size_t& bytes, Keys keys, Values values, N n, Less less, cudaStream_t stream = nullptr) {
    return details::in_two_phases(storage, bytes, details::kLittle, stream, [=] {
      const auto order = details::merge_order(keys, n, less);
      details::put_in_order(order, values, values);
      details::put_in_order(order, keys, keys);
      emulator::wrote(keys, n), emulator::wrote(values, n);
    });
  }
  template <class Keys, class Values, class N, class Less>
  static cudaError_t StableSortPairs(void* storage, std::size_t& bytes, Keys keys, Values values, N n, Less less, cudaStream_t stream = nullptr) { return SortPairs(storage, bytes, keys, values, n, less, stream); }
  template <class Keys, class Out, class N, class Less>
  static cudaError_t SortKeysCopy(void* storage, std::size_t& bytes, Keys keys, Out out, N n, Less less, cudaStream_t stream = nullptr) {
    return details::in_two_phases(storage, bytes, details::kLittle, stream, [=] {
      details::put_in_order(details::merge_order(keys, n, less), keys, out);
      emulator::wrote(out, n);
    });
  }
};

namespace details {
// Copies the elements that `selects(i)` names, in order. If `rest`, the others follow in reverse order.
template <class In, class Out, class Count, class N, class Selects>
cudaError_t select(void* storage, std::size_t& bytes, In in, Out out, Count selected, N n, cudaStream_t stream, bool rest, Selects selects) {
  return in_two_phases(storage, bytes, kLittle, stream, [=]() mutable {
    N count = 0, others = 0;
    std::vector<bool> chosen(n);
    for (N i = 0; i < n; ++i) chosen[i] = static_cast<bool>(selects(i));
    for (N i = 0; i < n; ++i) {
      if (chosen[i]) out[count++] = in[i];
      else if (rest) out[n - ++others] = in[i];
    }
    *selected = count;
    emulator::wrote(out, rest ? n : count), emulator::wrote(selected, 1);
  });
}
}  // namespace details

struct DeviceSelect {
  template <class In, class Flags, class Out, class Count, class N>
  static cudaError_t Flagged(void* storage, std::size_t& bytes, In in, Flags flags, Out out, Count selected, N n, cudaStream_t stream = nullptr) {
    return details::select(storage, bytes, in, out, selected, n, stream, false, [=](N i) { return flags[i]; });
  }
  template <class Data, class Flags, class Count, class N>
    requires std::is_integral_v<N>
  static cudaError_t Flagged(void* storage, std::size_t& bytes, Data data, Flags flags, Count selected, N n, cudaStream_t stream = nullptr) {
    return Flagged(storage, bytes, data, flags, data, selected, n, stream);
  }
  template <class In, class Out, class Count, class N, class Select>
    requires std::is_integral_v<N>
  static cudaError_t If(void* storage, std::size_t& bytes, In in, Out out, Count selected, N n, Select select, cudaStream_t stream = nullptr) {
    return details::select(storage, bytes, in, out, selected, n, stream, false, [=](N i) mutable { return select(in[i]); });
  }
  template <class Data, class Count, class N, class Select>
    requires std::is_integral_v<N>
  static cudaError_t If(void* storage, std::size_t& bytes, Data data, Count selected, N n, Select select, cudaStream_t stream = nullptr) {
    return If(storage, bytes, data, data, selected, n, select, stream);
  }
  template <class In, class Out, class Count, class N>
  static cudaError_t Unique(void* storage, std::size_t& bytes, In in, Out out, Count selected, N n, cudaStream_t stream = nullptr) {
    return details::select(storage, bytes, in, out, selected, n, stream, false, [=](N i) { return !i || !(in[i - 1] == in[i]); });
  }
  template <class Keys, class Values, class KeysOut, class ValuesOut, class Count, class N>
  static cudaError_t UniqueByKey(void* storage, std::size_t& bytes, Keys keys, Values values, KeysOut keys_out, ValuesOut values_out, Count selected, N n, cudaStream_t stream = nullptr) {
    return details::in_two_phases(storage, bytes, details::kLittle, stream, [=] {
      N count = 0;
      for (N i = 0; i < n; ++i)
        if (!i || !(keys[i - 1] == keys[i])) keys_out[count] = keys[i], values_out[count++] = values[i];
      *selected = count;
      emulator::wrote(keys_out, count), emulator::wrote(values_out, count), emulator::wrote(selected, 1);
    });
  }
};

struct DevicePartition {
  template <class In, class Flags, class Out, class Count, class N>
  static cudaError_t Flagged(void* storage, std::size_t& bytes, In in, Flags flags, Out out, Count selected, N n, cudaStream_t stream = nullptr) {
    return details::select(storage, bytes, in, out, selected, n, stream, true, [=](N i) { return flags[i]; });
  }
  template <class In, class Out, class Count, class N, class Select>
  static cudaError_t If(void* storage, std::size_t& bytes, In in, Out out, Count selected, N n, Select select, cudaStream_t stream = nullptr) {
    static_assert(std::is_integral_v<N>, "emulator_unsupported: partitions into three parts");
    return details::select(storage, bytes, in, out, selected, n, stream, true, [=](N i) mutable { return select(in[i]); });
  }
};

struct DeviceRunLengthEncode {
  template <class In, class Unique, class Lengths, class Count, class N>
  static cudaError_t Encode(void* storage, std::size_t& bytes, In in, Unique unique, Lengths lengths, Count runs, N n, cudaStream_t stream = nullptr) {
    return details::in_two_phases(storage, bytes, details::kLittle, stream, [=] {
      N count = 0;
      for (N first = 0, last; first < n; first = last, ++count) {
        for (last = first + 1; last < n && in[first] == in[last];) ++last;
        unique[count] = in[first], lengths[count] = last - first;
      }
      *runs = count;
      emulator::wrote(unique, count), emulator::wrote(lengths, count), emulator::wrote(runs, 1);
    });
  }
  template <class In, class Offsets, class Lengths, class Count, class N>
  static cudaError_t NonTrivialRuns(void* storage, std::size_t& bytes, In in, Offsets offsets, Lengths lengths, Count runs, N n, cudaStream_t stream = nullptr) {
    return details::in_two_phases(storage, bytes, details::kLittle, stream, [=] {
      N count = 0;
      for (N first = 0, last; first < n; first = last) {
        for (last = first + 1; last < n && in[first] == in[last];) ++last;
        if (last - first > 1) offsets[count] = first, lengths[count++] = last - first;
      }
      *runs = count;
      emulator::wrote(offsets, count), emulator::wrote(lengths, count), emulator::wrote(runs, 1);
    });
  }
};

struct DeviceHistogram {
  template <class In, class Counter, class Level, class N>
  static cudaError_t HistogramEven(void* storage, std::size_t& bytes, In in, Counter* counts, int levels, Level lower, Level upper, N n, cudaStream_t stream = nullptr) {
    return run(storage, bytes, in, counts, levels - 1, n, stream, [=](const auto& sample) -> int {
      if (!(sample >= lower && sample < upper)) return -1;
      if constexpr (std::is_integral_v<Level>) return static_cast<int>(static_cast<__int128>(sample - lower) * (levels - 1) / (upper - lower));
      else return static_cast<int>((static_cast<Level>(sample) - lower) * (static_cast<Level>(levels - 1) / (upper - lower)));
    });
  }
  template <class In, class Counter, class Level, class N>
  static cudaError_t HistogramRange(void* storage, std::size_t& bytes, In in, Counter* counts, int levels, const Level* bounds, N n, cudaStream_t stream = nullptr) {
    return run(storage, bytes, in, counts, levels - 1, n, stream, [=](const auto& sample) -> int {
      const int bin = static_cast<int>(std::upper_bound(bounds, bounds + levels, static_cast<Level>(sample)) - bounds) - 1;
      return bin < levels - 1 ? bin : -1;
    });
  }

 private:
  template <class In, class Counter, class N, class Bin>
  static cudaError_t run(void* storage, std::size_t& bytes, In in, Counter* counts, int bins, N n, cudaStream_t stream, Bin bin_of) {
    return details::in_two_phases(storage, bytes, details::kLittle, stream, [=] {
      for (int b = 0; b < bins; ++b) counts[b] = 0;
      for (N i = 0; i < n; ++i)
        if (const int bin = bin_of(in[i]); bin >= 0 && bin < bins) ++counts[bin];
      emulator::wrote(counts, bins);
    });
  }
};

struct DeviceSegmentedReduce {
  template <class In, class Out, class Begin, class End, class Operator, class Init>
  static cudaError_t Reduce(void* storage, std::size_t& bytes, In in, Out out, std::int64_t segments, Begin begins, End ends, Operator combine, Init start, cudaStream_t stream = nullptr) {
    return details::in_two_phases(storage, bytes, details::kLittle, stream, [=]() mutable {
      using T = details::Accumulated<Operator, Init, details::ValueOf<In>>;
      for (std::int64_t s = 0; s < segments; ++s) {
        const std::size_t first = begins[s], last = std::max<std::size_t>(first, ends[s]);
        out[s] = details::combined<T>([&](std::size_t i) { return in[i]; }, first, last, combine, static_cast<T>(start));
      }
      emulator::wrote(out, segments);
    });
  }
  template <class In, class Out, class Begin, class End>
  static cudaError_t Sum(void* storage, std::size_t& bytes, In in, Out out, std::int64_t segments, Begin begins, End ends, cudaStream_t stream = nullptr) {
    return Reduce(storage, bytes, in, out, segments, begins, ends, std::plus<>(), details::SumOf<Out, In>{}, stream);
  }
  template <class In, class Out, class Begin, class End>
  static cudaError_t Max(void* storage, std::size_t& bytes, In in, Out out, std::int64_t segments, Begin begins, End ends, cudaStream_t stream = nullptr) {
    return Reduce(storage, bytes, in, out, segments, begins, ends, cuda::maximum<>(), details::LimitsOf<In>::lowest(), stream);
  }
  template <class In, class Out, class Begin, class End>
  static cudaError_t Min(void* storage, std::size_t& bytes, In in, Out out, std::int64_t segments, Begin begins, End ends, cudaStream_t stream = nullptr) {
    return Reduce(storage, bytes, in, out, segments, begins, ends, cuda::minimum<>(), details::LimitsOf<In>::max(), stream);
  }
};

struct DeviceFor {
  template <class N, class Function>
    requires std::is_integral_v<N>
  static cudaError_t Bulk(N n, Function function, cudaStream_t stream = nullptr) {
    return emulator::launch_library(stream, [=]() mutable {
      for (N i = 0; i < n; ++i) function(i);
    });
  }
  template <class It, class Function>
  static cudaError_t ForEach(It first, It last, Function function, cudaStream_t stream = nullptr) {
    return emulator::launch_library(stream, [=]() mutable {
      for (It it = first; it != last; ++it) function(*it);
    });
  }
  template <class It, class N, class Function>
  static cudaError_t ForEachN(It first, N n, Function function, cudaStream_t stream = nullptr) { return ForEach(first, first + n, function, stream); }
};

struct DeviceTransform {
  template <class... In, class Out, class N, class Function>
  static cudaError_t Transform(std::tuple<In...> in, Out out, N n, Function function, cudaStream_t stream = nullptr) {
    return emulator::launch_library(stream, [=]() mutable {
      for (N i = 0; i < n; ++i) out[i] = std::apply([&](const auto&... each) { return function(each[i]...); }, in);
      emulator::wrote(out, n);
    });
  }
  template <class In, class Out, class N, class Function>
  static cudaError_t Transform(In in, Out out, N n, Function function, cudaStream_t stream = nullptr) { return Transform(std::make_tuple(in), out, n, function, stream); }
};

}  // namespace cub
