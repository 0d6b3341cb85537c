// The order of cub's radix sorts, and stable sorts in it.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <vector>

#include "emulator/bfloat16.h"
#include "emulator/half.h"

namespace cub {

struct NullType {};

namespace details {

template <class Key>
constexpr bool kIsFloat = std::is_floating_point_v<Key> || std::is_same_v<Key, __half> || std::is_same_v<Key, __nv_bfloat16> ||
                          (!std::is_integral_v<Key> && !std::is_enum_v<Key> && sizeof(Key) == 2);

// Returns an integer whose order is that of the keys. Both zeros of a floating type are equal.
template <class Key>
std::uint64_t radix_bits(const Key& key) {
  static_assert(std::is_trivially_copyable_v<Key> && (std::is_arithmetic_v<Key> || kIsFloat<Key>), "emulator_unsupported: radix sorts of this type of key");
  constexpr std::uint64_t kTop = std::uint64_t{1} << (8 * sizeof(Key) - 1);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &key, sizeof(Key));
  if constexpr (kIsFloat<Key>) {
    if (bits == kTop) bits = 0;
    return bits & kTop ? ~bits & (kTop | (kTop - 1)) : bits | kTop;
  } else {
    return std::is_signed_v<Key> ? bits ^ kTop : bits;
  }
}

// Returns only the bits from `begin` to `end` of this integer, in reverse order if `descending`.
template <class Key>
std::uint64_t radix_bits(const Key& key, bool descending, int begin, int end) {
  const std::uint64_t mask = end - begin >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << (end - begin)) - 1;
  return (radix_bits(key) >> begin & mask) ^ (descending ? mask : 0);
}

// Returns the places of `count` keys in stable order of the bits from `begin` to `end`.
template <class Keys>
std::vector<std::size_t> radix_order(const Keys& keys, std::size_t count, bool descending, int begin, int end) {
  std::vector<std::uint64_t> bits(count);
  for (std::size_t i = 0; i < count; ++i) bits[i] = radix_bits(keys[i], descending, begin, end);
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return bits[a] < bits[b]; });
  return order;
}

// Returns the places of `count` keys in the order of `less`, equal ones in their present order.
template <class Keys, class Less>
std::vector<std::size_t> merge_order(const Keys& keys, std::size_t count, Less less) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return less(keys[a], keys[b]); });
  return order;
}

// Stores from[order[i]] in to[i]. Both may be the same memory.
template <class From, class To>
void put_in_order(const std::vector<std::size_t>& order, const From& from, const To& to) {
  using T = std::remove_cvref_t<decltype(from[0])>;
  struct Kept {
    T value;
  };
  std::vector<Kept> kept;
  kept.reserve(order.size());
  for (const std::size_t i : order) kept.push_back({from[i]});
  for (std::size_t i = 0; i < kept.size(); ++i) to[i] = kept[i].value;
}

}  // namespace details
}  // namespace cub
