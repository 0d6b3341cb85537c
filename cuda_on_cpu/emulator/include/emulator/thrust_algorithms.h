// The algorithms of thrust. They run on the host, one element after the other. Each structure has an algorithm's forms,
// and EMULATOR_THRUST makes the function of thrust, which may get a policy as first argument.
#pragma once
#include <algorithm>
#include <functional>

#include "emulator/cub_device.h"
#include "emulator/thrust_vectors.h"

namespace thrust {

using std::bit_and;
using std::bit_or;
using std::bit_xor;
using std::divides;
using std::equal_to;
using std::greater;
using std::greater_equal;
using std::identity;
using std::less;
using std::less_equal;
using std::logical_and;
using std::logical_not;
using std::logical_or;
using std::minus;
using std::modulus;
using std::multiplies;
using std::negate;
using std::not_equal_to;
using std::plus;
template <class T = void>
using maximum = ::cuda::maximum<T>;
template <class T = void>
using minimum = ::cuda::minimum<T>;
template <class T>
struct square {
  constexpr T operator()(const T& x) const { return x * x; }
};

namespace details {

template <class It>
using Value = typename std::iterator_traits<It>::value_type;

template <class Algorithm, class... A>
auto on_device(cudaStream_t stream, Algorithm algorithm, A... a) {
  using Result = decltype(algorithm(a...));
  if constexpr (std::is_void_v<Result>) {
    emulator::launch_library(stream, [=]() mutable { algorithm(a...); });
  } else {
    Result out{};
    emulator::launch_library(stream, [&]() mutable { out = algorithm(a...); });
    return out;
  }
}
template <class Algorithm, class... A>
auto on_host(Algorithm algorithm, A... a) {
  if (!emulator::in_kernel()) (refuse_on_host(a), ...);
  return algorithm(a...);
}

struct Reduce {
  template <class It, class T, class Operator>
  T operator()(It first, It last, T start, Operator combine) const {
    return cub::details::combined<T>([&](std::size_t i) { return first[i]; }, 0, last - first, combine, start);
  }
  template <class It, class T>
  T operator()(It first, It last, T start) const { return (*this)(first, last, start, std::plus<>()); }
  template <class It>
  Value<It> operator()(It first, It last) const { return (*this)(first, last, Value<It>{}); }
};
struct TransformReduce {
  template <class It, class Transform, class T, class Operator>
  T operator()(It first, It last, Transform transform, T start, Operator combine) const {
    return cub::details::combined<T>([&](std::size_t i) { return transform(first[i]); }, 0, last - first, combine, start);
  }
};
struct InnerProduct {
  template <class A, class B, class T, class Plus, class Times>
  T operator()(A first, A last, B other, T start, Plus plus, Times times) const {
    return cub::details::combined<T>([&](std::size_t i) { return times(first[i], other[i]); }, 0, last - first, plus, start);
  }
  template <class A, class B, class T>
  T operator()(A first, A last, B other, T start) const { return (*this)(first, last, other, start, std::plus<>(), std::multiplies<>()); }
};
struct ReduceByKey {
  template <class Keys, class Values, class KeysOut, class ValuesOut, class Equal, class Operator>
  pair<KeysOut, ValuesOut> operator()(Keys keys, Keys last, Values values, KeysOut keys_out, ValuesOut values_out, Equal equal, Operator combine) const {
    using T = Value<Values>;
    std::ptrdiff_t n = last - keys, count = 0;
    for (std::ptrdiff_t from = 0, to; from < n; from = to, ++count) {
      for (to = from + 1; to < n && equal(keys[to - 1], keys[to]);) ++to;
      keys_out[count] = keys[from];
      values_out[count] = cub::details::combined<T>([&](std::size_t i) { return values[i]; }, from, to, combine);
    }
    report(keys_out, count), report(values_out, count);
    return {keys_out + count, values_out + count};
  }
  template <class Keys, class Values, class KeysOut, class ValuesOut, class Equal = std::equal_to<>>
  pair<KeysOut, ValuesOut> operator()(Keys keys, Keys last, Values values, KeysOut keys_out, ValuesOut values_out, Equal equal = {}) const {
    return (*this)(keys, last, values, keys_out, values_out, equal, std::plus<>());
  }
};

template <bool kExclusive>
struct Scan {
  template <class In, class Out, class T, class Operator>
  static Out run(In first, In last, Out out, const T* start, Operator combine) {
    const std::ptrdiff_t n = last - first;
    cub::details::scan<T>([&](std::size_t i) { return first[i]; }, n, combine, start, kExclusive, [&](std::size_t i, const T& value) { out[i] = value; });
    report(out, n);
    return out + n;
  }
};
struct InclusiveScan : Scan<false> {
  template <class In, class Out, class Operator = std::plus<>>
  Out operator()(In first, In last, Out out, Operator combine = {}) const { return run(first, last, out, static_cast<const Value<In>*>(nullptr), combine); }
};
struct ExclusiveScan : Scan<true> {
  template <class In, class Out, class T, class Operator = std::plus<>>
  Out operator()(In first, In last, Out out, T start, Operator combine = {}) const { return run(first, last, out, &start, combine); }
  template <class In, class Out>
  Out operator()(In first, In last, Out out) const { return (*this)(first, last, out, Value<In>{}); }
};
struct TransformInclusiveScan {
  template <class In, class Out, class Transform, class Operator>
  Out operator()(In first, In last, Out out, Transform transform, Operator combine) const {
    return InclusiveScan()(make_transform_iterator(first, transform), make_transform_iterator(last, transform), out, combine);
  }
};
struct TransformExclusiveScan {
  template <class In, class Out, class Transform, class T, class Operator>
  Out operator()(In first, In last, Out out, Transform transform, T start, Operator combine) const {
    return ExclusiveScan()(make_transform_iterator(first, transform), make_transform_iterator(last, transform), out, start, combine);
  }
};
template <bool kExclusive>
struct ScanByKey {
  template <class Keys, class In, class Out, class T, class Equal, class Operator>
  static Out run(Keys keys, Keys last, In in, Out out, const T* start, Equal equal, Operator combine) {
    const std::ptrdiff_t n = last - keys;
    for (std::ptrdiff_t from = 0, to; from < n; from = to) {
      for (to = from + 1; to < n && equal(keys[to - 1], keys[to]);) ++to;
      Scan<kExclusive>::run(in + from, in + to, out + from, start, combine);
    }
    return out + n;
  }
};
struct InclusiveScanByKey : ScanByKey<false> {
  template <class Keys, class In, class Out, class Equal = std::equal_to<>, class Operator = std::plus<>>
  Out operator()(Keys keys, Keys last, In in, Out out, Equal equal = {}, Operator combine = {}) const { return run(keys, last, in, out, static_cast<const Value<In>*>(nullptr), equal, combine); }
};
struct ExclusiveScanByKey : ScanByKey<true> {
  template <class Keys, class In, class Out, class T, class Equal = std::equal_to<>, class Operator = std::plus<>>
  Out operator()(Keys keys, Keys last, In in, Out out, T start, Equal equal = {}, Operator combine = {}) const { return run(keys, last, in, out, &start, equal, combine); }
  template <class Keys, class In, class Out>
  Out operator()(Keys keys, Keys last, In in, Out out) const { return (*this)(keys, last, in, out, Value<In>{}); }
};

struct Transform {
  template <class In, class Out, class Function>
  Out operator()(In first, In last, Out out, Function function) const {
    const std::ptrdiff_t n = last - first;
    for (std::ptrdiff_t i = 0; i < n; ++i) out[i] = function(first[i]);
    report(out, n);
    return out + n;
  }
  template <class In, class Other, class Out, class Function>
  Out operator()(In first, In last, Other other, Out out, Function function) const {
    const std::ptrdiff_t n = last - first;
    for (std::ptrdiff_t i = 0; i < n; ++i) out[i] = function(first[i], other[i]);
    report(out, n);
    return out + n;
  }
};
struct TransformIf {
  template <class In, class Out, class Function, class Select>
  Out operator()(In first, In last, Out out, Function function, Select select) const {
    const std::ptrdiff_t n = last - first;
    for (std::ptrdiff_t i = 0; i < n; ++i)
      if (select(first[i])) out[i] = function(first[i]);
    return out + n;
  }
};
struct ForEach {
  template <class It, class Function>
  It operator()(It first, It last, Function function) const {
    for (; first != last; ++first) function(*first);
    return last;
  }
};
struct ForEachN {
  template <class It, class N, class Function>
  It operator()(It first, N n, Function function) const { return ForEach()(first, first + n, function); }
};
struct Copy {
  template <class In, class Out>
  Out operator()(In first, In last, Out out) const {
    const std::ptrdiff_t n = last - first;
    for (std::ptrdiff_t i = 0; i < n; ++i) out[i] = first[i];
    report(out, n);
    return out + n;
  }
};
struct CopyN {
  template <class In, class N, class Out>
  Out operator()(In first, N n, Out out) const { return Copy()(first, first + n, out); }
};
struct CopyIf {
  template <class In, class Flags, class Out, class Select>
  Out operator()(In first, In last, Flags flags, Out out, Select select) const {
    std::ptrdiff_t n = last - first, count = 0;
    for (std::ptrdiff_t i = 0; i < n; ++i)
      if (select(flags[i])) out[count++] = first[i];
    report(out, count);
    return out + count;
  }
  template <class In, class Out, class Select>
  Out operator()(In first, In last, Out out, Select select) const { return (*this)(first, last, first, out, select); }
};
struct RemoveIf {
  template <class It, class Select>
  It operator()(It first, It last, Select select) const { return CopyIf()(first, last, first, [=](const auto& value) mutable { return !select(value); }); }
};
struct Remove {
  template <class It, class T>
  It operator()(It first, It last, T value) const { return RemoveIf()(first, last, [=](const auto& each) { return each == value; }); }
};
struct Fill {
  template <class It, class T>
  void operator()(It first, It last, T value) const {
    const It begin = first;
    for (; first != last; ++first) *first = value;
    report(begin, last - begin);
  }
};
struct FillN {
  template <class It, class N, class T>
  It operator()(It first, N n, T value) const { return Fill()(first, first + n, value), first + n; }
};
struct Sequence {
  template <class It, class T>
  void operator()(It first, It last, T start, T step) const {
    const std::ptrdiff_t n = last - first;
    for (std::ptrdiff_t i = 0; i < n; ++i) first[i] = static_cast<Value<It>>(start + step * static_cast<T>(i));
    report(first, n);
  }
  template <class It, class T>
  void operator()(It first, It last, T start) const { (*this)(first, last, start, T(1)); }
  template <class It>
  void operator()(It first, It last) const { (*this)(first, last, Value<It>{}); }
};
struct Tabulate {
  template <class It, class Function>
  void operator()(It first, It last, Function function) const {
    const std::ptrdiff_t n = last - first;
    for (std::ptrdiff_t i = 0; i < n; ++i) first[i] = function(i);
    report(first, n);
  }
};
struct Generate {
  template <class It, class Function>
  void operator()(It first, It last, Function function) const { Tabulate()(first, last, [=](std::ptrdiff_t) mutable { return function(); }); }
};
struct ReplaceIf {
  template <class It, class Select, class T>
  void operator()(It first, It last, Select select, T value) const {
    for (; first != last; ++first)
      if (select(*first)) *first = value;
  }
};
struct Replace {
  template <class It, class T>
  void operator()(It first, It last, T old, T value) const { ReplaceIf()(first, last, [=](const auto& each) { return each == old; }, value); }
};
struct Gather {
  template <class Places, class In, class Out>
  Out operator()(Places first, Places last, In in, Out out) const {
    const std::ptrdiff_t n = last - first;
    for (std::ptrdiff_t i = 0; i < n; ++i) out[i] = in[first[i]];
    report(out, n);
    return out + n;
  }
};
struct Scatter {
  template <class In, class Places, class Out>
  void operator()(In first, In last, Places places, Out out) const {
    for (; first != last; ++first, ++places) out[*places] = *first;
  }
};
struct Reverse {
  template <class It>
  void operator()(It first, It last) const {
    for (; first < last && first < --last; ++first) {
      const Value<It> kept = *first;
      *first = *last;
      *last = kept;
    }
  }
};
struct AdjacentDifference {
  template <class In, class Out, class Operator = std::minus<>>
  Out operator()(In first, In last, Out out, Operator combine = {}) const {
    const std::ptrdiff_t n = last - first;
    for (std::ptrdiff_t i = n - 1; i > 0; --i) out[i] = combine(first[i], first[i - 1]);
    if (n > 0) out[0] = first[0];
    report(out, n);
    return out + n;
  }
};

struct Sort {
  template <class It, class Less = std::less<>>
  void operator()(It first, It last, Less less = {}) const {
    cub::details::put_in_order(cub::details::merge_order(first, last - first, less), first, first);
    report(first, last - first);
  }
};
struct SortByKey {
  template <class Keys, class Values, class Less = std::less<>>
  void operator()(Keys first, Keys last, Values values, Less less = {}) const {
    const auto order = cub::details::merge_order(first, last - first, less);
    cub::details::put_in_order(order, values, values);
    cub::details::put_in_order(order, first, first);
    report(first, last - first), report(values, last - first);
  }
};
struct Unique {
  template <class It, class Equal = std::equal_to<>>
  It operator()(It first, It last, Equal equal = {}) const {
    std::ptrdiff_t n = last - first, count = 0;
    for (std::ptrdiff_t i = 0; i < n; ++i)
      if (!i || !equal(first[count - 1], first[i])) first[count++] = first[i];
    return first + count;
  }
};
struct UniqueByKey {
  template <class Keys, class Values, class Equal = std::equal_to<>>
  pair<Keys, Values> operator()(Keys first, Keys last, Values values, Equal equal = {}) const {
    std::ptrdiff_t n = last - first, count = 0;
    for (std::ptrdiff_t i = 0; i < n; ++i)
      if (!i || !equal(first[count - 1], first[i])) first[count] = first[i], values[count++] = values[i];
    return {first + count, values + count};
  }
};
struct Partition {
  template <class It, class Select>
  It operator()(It first, It last, Select select) const {
    const std::ptrdiff_t n = last - first;
    std::vector<std::size_t> order;
    for (const bool wanted : {true, false})
      for (std::ptrdiff_t i = 0; i < n; ++i)
        if (static_cast<bool>(select(first[i])) == wanted) order.push_back(i);
    const auto chosen = std::count_if(first, last, select);
    cub::details::put_in_order(order, first, first);
    return first + chosen;
  }
};

struct Count {
  template <class It, class T>
  std::ptrdiff_t operator()(It first, It last, T value) const { return std::count(first, last, value); }
};
struct CountIf {
  template <class It, class Select>
  std::ptrdiff_t operator()(It first, It last, Select select) const { return std::count_if(first, last, select); }
};
struct MinElement {
  template <class It, class Less = std::less<>>
  It operator()(It first, It last, Less less = {}) const { return std::min_element(first, last, less); }
};
struct MaxElement {
  template <class It, class Less = std::less<>>
  It operator()(It first, It last, Less less = {}) const { return std::max_element(first, last, less); }
};
struct MinmaxElement {
  template <class It, class Less = std::less<>>
  pair<It, It> operator()(It first, It last, Less less = {}) const { return {std::min_element(first, last, less), std::max_element(first, last, less)}; }
};
struct FindIf {
  template <class It, class Select>
  It operator()(It first, It last, Select select) const { return std::find_if(first, last, select); }
};
struct Find {
  template <class It, class T>
  It operator()(It first, It last, T value) const { return std::find(first, last, value); }
};
struct AllOf {
  template <class It, class Select>
  bool operator()(It first, It last, Select select) const { return std::all_of(first, last, select); }
};
struct AnyOf {
  template <class It, class Select>
  bool operator()(It first, It last, Select select) const { return std::any_of(first, last, select); }
};
struct NoneOf {
  template <class It, class Select>
  bool operator()(It first, It last, Select select) const { return std::none_of(first, last, select); }
};
struct Equal {
  template <class A, class B, class Same = std::equal_to<>>
  bool operator()(A first, A last, B other, Same same = {}) const { return std::equal(first, last, other, same); }
};
struct IsSorted {
  template <class It, class Less = std::less<>>
  bool operator()(It first, It last, Less less = {}) const { return std::is_sorted(first, last, less); }
};
// Searches for one value, or for each of a range of values, whose places are stored.
template <bool kUpper>
struct Bound {
  template <class It, class T>
  It operator()(It first, It last, T value) const { return kUpper ? std::upper_bound(first, last, value) : std::lower_bound(first, last, value); }
  template <class It, class Values, class Out>
  Out operator()(It first, It last, Values values, Values values_last, Out out) const {
    const std::ptrdiff_t n = values_last - values;
    for (std::ptrdiff_t i = 0; i < n; ++i) {
      const Value<Values> value = values[i];
      out[i] = (kUpper ? std::upper_bound(first, last, value) : std::lower_bound(first, last, value)) - first;
    }
    report(out, n);
    return out + n;
  }
};

}  // namespace details

#define EMULATOR_THRUST(NAME, ALGORITHM)                                                                                      \
  template <class Policy, class... A>                                                                                         \
    requires kIsPolicy<Policy>                                                                                                \
  auto NAME(const Policy& policy, A... a) {                                                                                   \
    if constexpr (std::is_same_v<Policy, device_policy>) return details::on_device(policy.stream, ALGORITHM(), a...);         \
    else return details::on_host(ALGORITHM(), a...);                                                                          \
  }                                                                                                                           \
  template <class First, class... A>                                                                                          \
    requires(!kIsPolicy<First>)                                                                                               \
  auto NAME(First first, A... a) {                                                                                            \
    if constexpr ((details::IsDevice<First>::value || ... || details::IsDevice<A>::value)) return details::on_device(nullptr, ALGORITHM(), first, a...); \
    else return details::on_host(ALGORITHM(), first, a...);                                                                   \
  }
EMULATOR_THRUST(reduce, details::Reduce)
EMULATOR_THRUST(transform_reduce, details::TransformReduce)
EMULATOR_THRUST(inner_product, details::InnerProduct)
EMULATOR_THRUST(reduce_by_key, details::ReduceByKey)
EMULATOR_THRUST(inclusive_scan, details::InclusiveScan)
EMULATOR_THRUST(exclusive_scan, details::ExclusiveScan)
EMULATOR_THRUST(transform_inclusive_scan, details::TransformInclusiveScan)
EMULATOR_THRUST(transform_exclusive_scan, details::TransformExclusiveScan)
EMULATOR_THRUST(inclusive_scan_by_key, details::InclusiveScanByKey)
EMULATOR_THRUST(exclusive_scan_by_key, details::ExclusiveScanByKey)
EMULATOR_THRUST(transform, details::Transform)
EMULATOR_THRUST(transform_if, details::TransformIf)
EMULATOR_THRUST(for_each, details::ForEach)
EMULATOR_THRUST(for_each_n, details::ForEachN)
EMULATOR_THRUST(copy, details::Copy)
EMULATOR_THRUST(copy_n, details::CopyN)
EMULATOR_THRUST(copy_if, details::CopyIf)
EMULATOR_THRUST(remove, details::Remove)
EMULATOR_THRUST(remove_if, details::RemoveIf)
EMULATOR_THRUST(fill, details::Fill)
EMULATOR_THRUST(fill_n, details::FillN)
EMULATOR_THRUST(sequence, details::Sequence)
EMULATOR_THRUST(tabulate, details::Tabulate)
EMULATOR_THRUST(generate, details::Generate)
EMULATOR_THRUST(replace, details::Replace)
EMULATOR_THRUST(replace_if, details::ReplaceIf)
EMULATOR_THRUST(gather, details::Gather)
EMULATOR_THRUST(scatter, details::Scatter)
EMULATOR_THRUST(reverse, details::Reverse)
EMULATOR_THRUST(adjacent_difference, details::AdjacentDifference)
EMULATOR_THRUST(sort, details::Sort)
EMULATOR_THRUST(stable_sort, details::Sort)
EMULATOR_THRUST(sort_by_key, details::SortByKey)
EMULATOR_THRUST(stable_sort_by_key, details::SortByKey)
EMULATOR_THRUST(unique, details::Unique)
EMULATOR_THRUST(unique_by_key, details::UniqueByKey)
EMULATOR_THRUST(partition, details::Partition)
EMULATOR_THRUST(stable_partition, details::Partition)
EMULATOR_THRUST(count, details::Count)
EMULATOR_THRUST(count_if, details::CountIf)
EMULATOR_THRUST(min_element, details::MinElement)
EMULATOR_THRUST(max_element, details::MaxElement)
EMULATOR_THRUST(minmax_element, details::MinmaxElement)
EMULATOR_THRUST(find, details::Find)
EMULATOR_THRUST(find_if, details::FindIf)
EMULATOR_THRUST(all_of, details::AllOf)
EMULATOR_THRUST(any_of, details::AnyOf)
EMULATOR_THRUST(none_of, details::NoneOf)
EMULATOR_THRUST(equal, details::Equal)
EMULATOR_THRUST(is_sorted, details::IsSorted)
EMULATOR_THRUST(lower_bound, details::Bound<false>)
EMULATOR_THRUST(upper_bound, details::Bound<true>)
#undef EMULATOR_THRUST

}  // namespace thrust
