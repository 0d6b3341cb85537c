// The instructions of inline PTX. The translation of an `asm` statement calls these functions. Operands are bits: a
// register that PTX calls .b32 may hold a float or two halves.
// https://docs.nvidia.com/cuda/parallel-thread-execution/
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>
#include <utility>

#include "emulator/async_copy.h"
#include "emulator/bfloat16.h"
#include "emulator/cluster.h"
#include "emulator/half.h"
#include "emulator/kernel.h"
#include "emulator/matrix_unit.h"
#include "emulator/ptx_registers.h"
#include "emulator/ptx_scalar.h"
#include "emulator/tensor_map.h"
#include "emulator/tiny_float.h"
#include "emulator/wgmma.h"

namespace emulator {

// Returns the address in the block's shared memory whose lower 32 bits are `low`. A GPU's addresses of shared memory
// have 32 bits, so kernels keep them in such integers.
void* shared_at(std::uint32_t low);

namespace ptx {

using emulator::async_commit;
using emulator::async_wait;

template <std::size_t kBytes>
using Bits = std::conditional_t<kBytes == 1, std::uint8_t, std::conditional_t<kBytes == 2, std::uint16_t, std::conditional_t<kBytes == 4, std::uint32_t, std::uint64_t>>>;

// A number of a PTX text with a point, an exponent or the digits of a double.
struct Literal {
  double value;
};
// A result that is not wanted, which PTX calls `_`.
inline constexpr struct Sink {} sink;

// Whether nvcc takes an operand of type T for a constraint of an asm statement: `r`, `l` and `h` stand for integers,
// enumerations and pointers of 4, 8 and 2 bytes, `f` for a float, and `d` for a double.
template <char kConstraint, class T>
constexpr bool fits() {
  using V = std::remove_cvref_t<T>;
  if constexpr (kConstraint == 'f') return std::is_same_v<V, float>;
  else if constexpr (kConstraint == 'd') return std::is_same_v<V, double>;
  else return (std::is_integral_v<V> || std::is_enum_v<V> || std::is_pointer_v<V>) && sizeof(V) == (kConstraint == 'h' ? 2 : kConstraint == 'r' ? 4 : 8);
}
template <char kConstraint, class T>
constexpr void check_operand(const T&) {
  static_assert(fits<kConstraint, T>(), "asm operand type size does not match type/size implied by constraint");
}
// An operand with the constraint `n`.
template <auto kValue>
inline constexpr auto constant = kValue;

// Returns the bits of a register as a T. An integer of another size is cut or extended.
template <class T, class V>
T as(const V& value) {
  if constexpr (std::is_same_v<T, bool>) return static_cast<bool>(value);
  else if constexpr (sizeof(T) == sizeof(V)) {
    T out;
    std::memcpy(static_cast<void*>(&out), &value, sizeof out);
    return out;
  } else {
    static_assert(std::is_integral_v<V>, "emulator_unsupported: inline PTX with registers of another size");
    return as<T>(static_cast<Bits<sizeof(T)>>(value));
  }
}
template <class T>
T as(Literal literal) {
  static_assert(std::is_floating_point_v<T>, "emulator_unsupported: inline PTX with a fraction as an integer");
  return static_cast<T>(literal.value);
}
template <class T, class V>
void put(T& out, const V& value) {
  out = as<std::remove_volatile_t<T>>(value);
}
template <class V>
void put(const Sink&, const V&) {}

struct Address {
  char* at;
  template <class T>
  T* as() const { return reinterpret_cast<T*>(at); }
  bool aligned(std::size_t bytes) const {
    if (reinterpret_cast<std::uintptr_t>(at) % bytes == 0) return true;
    fail_in_kernel("misaligned address in inline PTX");
    return false;
  }
};
template <class V>
Address at(const V& base, std::int64_t offset) {
  if constexpr (sizeof(V) == 4) return {static_cast<char*>(shared_at(as<std::uint32_t>(base) + static_cast<std::uint32_t>(offset)))};
  else return {reinterpret_cast<char*>(as<std::uint64_t>(base)) + offset};
}

template <class T, class... V>
void load(Address from, V&... out) {
  if (!from.aligned(sizeof(T) * sizeof...(V))) return;
  const T* each = from.as<const T>();
  (put(out, *each++), ...);
}
template <class T, class... V>
void store(Address to, const V&... values) {
  if (!to.aligned(sizeof(T) * sizeof...(V))) return;
  T* each = to.as<T>();
  ((*each++ = as<T>(values)), ...);
}

// mov between one register and a list of smaller ones.
template <class T, class... D, class S>
void repack(std::tuple<D...> to, const S& from) {
  using Part = Bits<sizeof(T) / sizeof...(D)>;
  const T all = as<T>(from);
  const auto* bytes = reinterpret_cast<const char*>(&all);
  const auto take = [&](auto& each) {
    Part part;
    std::memcpy(&part, bytes, sizeof part), bytes += sizeof part;
    put(each, part);
  };
  std::apply([&](auto&... each) { (take(each), ...); }, to);
}
template <class T, class D, class... S>
void repack(D& to, std::tuple<S...> from) {
  T all{};
  auto* bytes = reinterpret_cast<char*>(&all);
  std::apply([&](const auto&... each) { ((std::memcpy(bytes, &each, sizeof each), bytes += sizeof each), ...); }, from);
  put(to, all);
}

// Sums and differences of integers with the carry flag, which belongs to the running thread.
template <bool kReads, bool kSets, class T>
T sum(T a, T b) {
  const unsigned __int128 all = static_cast<unsigned __int128>(a) + b + (kReads && carry);
  if (kSets) carry = all >> (8 * sizeof(T)) & 1;
  return static_cast<T>(all);
}
template <bool kReads, bool kSets, class T>
T difference(T a, T b) {
  const unsigned __int128 all = static_cast<unsigned __int128>(a) - b - (kReads && carry);
  if (kSets) carry = all >> (8 * sizeof(T)) & 1;
  return static_cast<T>(all);
}

template <class T>
std::uint32_t popc(T x) { return static_cast<std::uint32_t>(std::popcount(x)); }
template <class T>
std::uint32_t clz(T x) { return static_cast<std::uint32_t>(std::countl_zero(x)); }
template <class T>
T brev(T x) { return static_cast<T>(__brevll(x) >> (64 - 8 * sizeof(T))); }
// The place of the highest bit that is not the sign; all ones if there is none.
template <class T>
std::uint32_t bfind(T x) {
  const auto bits = static_cast<std::make_unsigned_t<T>>(x < 0 ? ~x : x);
  return static_cast<std::uint32_t>(8 * sizeof(T)) - 1 - clz(bits);
}
// The field of `bits` bits that begins at bit `start`. Above the number, a field repeats the number's sign.
template <class T>
T bfe(T x, std::uint32_t start, std::uint32_t bits) {
  start &= 0xFF, bits &= 0xFF;
  if (!bits) return 0;
  const __int128 wide = x;
  const __int128 shifted = wide >> (start < 127 ? start : 127), mask = bits < 64 ? (static_cast<__int128>(1) << bits) - 1 : static_cast<__int128>(~std::uint64_t{0});
  const bool negative = std::is_signed_v<T> && (bits + start < 8 * sizeof(T) ? wide >> (start + bits - 1) & 1 : x < 0);
  return static_cast<T>(negative ? shifted | ~mask : shifted & mask);
}
// Replaces this field of `into` by the low bits of x.
template <class T>
T bfi(T x, T into, std::uint32_t start, std::uint32_t bits) {
  start &= 0xFF, bits &= 0xFF;
  if (start >= 8 * sizeof(T) || !bits) return into;
  const T ones = bits < 8 * sizeof(T) ? static_cast<T>((T{1} << bits) - 1) : static_cast<T>(~T{0}), mask = static_cast<T>(ones << start);
  return static_cast<T>((into & ~mask) | (static_cast<T>(x << start) & mask));
}

// shfl.sync: the low bits of `clamp` bound the source lane, and its bits from 8 on are the lane bits that stay.
enum ShuffleMode { kUp, kDown, kButterfly, kIndex };
inline std::pair<std::uint32_t, bool> shuffle(ShuffleMode mode, std::uint32_t value, std::uint32_t by, std::uint32_t clamp, std::uint32_t mask) {
  const int mine = static_cast<int>(lane()), fixed = static_cast<int>(clamp >> 8 & 31), step = static_cast<int>(by & 31);
  const int bound = (mine & fixed) | (static_cast<int>(clamp & 31) & ~fixed);
  const int from = mode == kUp ? mine - step : mode == kDown ? mine + step : mode == kButterfly ? mine ^ step : (mine & fixed) | (step & ~fixed);
  const bool valid = mode == kUp ? from >= bound : from <= bound;
  const Exchanged<std::uint32_t> all(mask, value);
  return {all.of(static_cast<unsigned>(valid ? from : mine)), valid};
}

template <class T>
T shift_left(T value, std::uint32_t by) { return by >= sizeof(T) * 8 ? T{} : static_cast<T>(value << by); }
template <class T>
T shift_right(T value, std::uint32_t by) { return by < sizeof(T) * 8 ? static_cast<T>(value >> by) : value < 0 ? static_cast<T>(-1) : T{}; }
// Bit i of `table` is the result where the bits of a, b and c are the number i.
inline std::uint32_t lop3(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t table) {
  std::uint32_t out = 0;
  for (unsigned i = 0; i < 8; ++i)
    if (table >> i & 1) out |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  return out;
}
// cvt to and from pairs of FP8 numbers.
template <class Format>
std::uint16_t to_fp8_pair(float high, float low, bool relu) {
  const auto one = [=](float value) { return Format::from(relu && value < 0 ? 0.0f : value, true); };
  return static_cast<std::uint16_t>(one(high) << 8 | one(low));
}
template <class Format>
__half2 from_fp8_pair(std::uint16_t bits) { return __floats2half2_rn(static_cast<float>(Format::to_double(bits & 0xFF)), static_cast<float>(Format::to_double(bits >> 8))); }
inline float rounded_to_tf32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return (bits & 0x7F800000) == 0x7F800000 ? value : std::bit_cast<float>((bits + 0x1000) & ~0x1FFFu);
}
// Converts a whole number to an integer: what is too large becomes the largest, and NaN becomes 0.
template <class T, class F>
T saturated(F whole) {
  using Limits = std::numeric_limits<T>;
  if (std::isnan(whole)) return 0;
  if (whole <= static_cast<F>(Limits::min())) return Limits::min();
  return whole >= static_cast<F>(Limits::max()) ? Limits::max() : static_cast<T>(whole);
}

// mapa: the address in the shared memory of another block of the cluster.
template <class A>
A mapped(A address, std::uint32_t rank) {
  if constexpr (sizeof(A) == 4) return static_cast<A>(reinterpret_cast<std::uintptr_t>(in_block_of_cluster(shared_at(address), rank)));
  else return reinterpret_cast<A>(in_block_of_cluster(reinterpret_cast<const void*>(address), rank));
}
// setmaxnreg changes how many registers a thread may have, of which the emulation has no limit.
inline void check_registers(std::uint32_t count) {
  if (count < 24 || count > 256 || count % 8) fail_in_kernel("setmaxnreg with a number that is no multiple of 8 from 24 to 256");
}
// elect.sync: one lane of the mask, and whether it is the running one.
inline std::pair<std::uint32_t, bool> elect(std::uint32_t mask) {
  const auto leader = static_cast<std::uint32_t>(std::countr_zero(meet(mask, 0).lanes));
  return {leader, leader == lane()};
}

// The scalar video instructions. Part is a register or its byte or half from the bit `at` on. A value is an integer that
// no sum of two of them overflows.
template <class T>
struct Part {
  T value;
  unsigned bits, at;
};
template <class T>
Part<T> part(T&& value, unsigned bits = 32, unsigned at = 0) { return {std::forward<T>(value), bits, at}; }
template <class T>
std::int64_t read_part(const Part<T>& from, bool is_signed) {
  const std::uint32_t left = as<std::uint32_t>(from.value) >> from.at << (32 - from.bits);
  return is_signed ? static_cast<std::int32_t>(left) >> (32 - from.bits) : static_cast<std::int64_t>(left >> (32 - from.bits));
}
template <class T>
std::int64_t saturated(const Part<T>& to, bool is_signed, std::int64_t value) {
  const std::int64_t least = is_signed ? -(std::int64_t{1} << (to.bits - 1)) : 0;
  return std::clamp(value, least, least + (std::int64_t{1} << to.bits) - 1);
}
// Writes a byte or a half of the result, and the other bits from `rest`.
template <class T, class C>
void merge(Part<T> to, std::int64_t value, const C& rest) {
  const std::uint32_t mask = ~0u >> (32 - to.bits) << to.at;
  put(to.value, (static_cast<std::uint32_t>(value) << to.at & mask) | (as<std::uint32_t>(rest) & ~mask));
}

// cp.async. `source` is the number of bytes to read, the rest are zeros; or, as a predicate, whether to read none. It is
// inlined, so that a profile knows the kernel's line. ptxas refuses other sizes, and a size in a register.
template <std::size_t size, class Source = std::size_t>
__attribute__((always_inline)) inline void copy_ca(Address to, Address from, Source source = size) {
  static_assert(size == 4 || size == 8 || size == 16, "Argument 2 of instruction 'cp.async.ca': expected to be 4 or 8 or 16");
  const std::size_t wanted = std::is_same_v<Source, bool> ? (source ? 0 : size) : static_cast<std::size_t>(source);
  if (to.aligned(size) && from.aligned(size)) async_copy(to.at, from.at, size, size - (wanted < size ? wanted : size));
}
template <std::size_t size, class Source = std::size_t>
__attribute__((always_inline)) inline void copy_cg(Address to, Address from, Source source = size) {
  static_assert(size == 16, "Argument 2 of instruction 'cp.async.cg': expected to be 16");
  copy_ca<16>(to, from, source);
}

// The address that a lane gives to ldmatrix or stmatrix. Those of lanes without a row are ignored.
template <unsigned kMatrices, class Row>
const char* row_of_lane(const Row& row) {
  return lane() < 8 * kMatrices ? row().at : nullptr;
}

// ldmatrix: lanes 8 j to 8 j + 7 give the addresses of the rows of matrix j, which has 8 x 8 elements of 16 bits. Each
// lane gets two elements of one row of each matrix, or of one column.
template <bool kTransposed, class Row, class... R>
void load_matrices(const Row& row, R&... registers) {
  const Exchanged<const char*> rows(~0u, row_of_lane<sizeof...(R)>(row));
  if (rows.lanes() != ~0u) fail_in_kernel("all lanes of a warp must call ldmatrix together");
  unsigned matrix = 0;
  const unsigned mine = lane(), outer = mine / 4, inner = mine % 4 * 2;
  const auto next = [&](auto& out) {
    std::uint16_t pair[2];
    for (unsigned i = 0; i < 2; ++i) {
      const Address from{const_cast<char*>(rows.of(8 * matrix + (kTransposed ? inner + i : outer)))};
      if (!from.aligned(16)) return;
      pair[i] = from.as<const std::uint16_t>()[kTransposed ? outer : inner + i];
    }
    put(out, std::bit_cast<std::uint32_t>(pair));
    ++matrix;
  };
  (next(registers), ...);
  __syncwarp();
}

// stmatrix: the inverse. Each lane has two elements of one row of each matrix, or of one column.
template <bool kTransposed, class Row, class... R>
void store_matrices(const Row& row, const R&... registers) {
  const Exchanged<const char*> rows(~0u, row_of_lane<sizeof...(R)>(row));
  if (rows.lanes() != ~0u) fail_in_kernel("all lanes of a warp must call stmatrix together");
  unsigned matrix = 0;
  const unsigned mine = lane(), outer = mine / 4, inner = mine % 4 * 2;
  const auto next = [&](const auto& in) {
    const auto bits = as<std::uint32_t>(in);
    for (unsigned i = 0; i < 2; ++i) {
      const Address to{const_cast<char*>(rows.of(8 * matrix + (kTransposed ? inner + i : outer)))};
      if (!to.aligned(16)) return;
      to.as<std::uint16_t>()[kTransposed ? outer : inner + i] = static_cast<std::uint16_t>(bits >> 16 * i);
    }
    ++matrix;
  };
  (next(registers), ...);
  __syncwarp();
}

// The number types of the factors of mma.sync: how many numbers a register holds, and number `i` of a register.
struct Half {
  static constexpr int kCount = 2;
  static constexpr Factor kFactor = Factor::kHalf;
  static float of(std::uint32_t bits, int i) { return widened(std::bit_cast<__half>(static_cast<std::uint16_t>(bits >> 16 * i))); }
};
struct Bfloat16 {
  static constexpr int kCount = 2;
  static constexpr Factor kFactor = Factor::kBfloat16;
  static float of(std::uint32_t bits, int i) { return widened(std::bit_cast<__nv_bfloat16>(static_cast<std::uint16_t>(bits >> 16 * i))); }
};
struct Tf32 {
  static constexpr int kCount = 1;
  static constexpr Factor kFactor = Factor::kTf32;
  static float of(std::uint32_t bits, int) { return std::bit_cast<float>(bits & ~0x1FFFu); }
};
struct Int8 {
  static constexpr int kCount = 4;
  static std::int32_t of(std::uint32_t bits, int i) { return static_cast<std::int8_t>(bits >> 8 * i); }
};
struct Uint8 {
  static constexpr int kCount = 4;
  static std::int32_t of(std::uint32_t bits, int i) { return static_cast<std::uint8_t>(bits >> 8 * i); }
};
template <class Format>
struct Fp8 {
  static constexpr int kCount = 4;
  static constexpr Factor kFactor = Factor::kHalf;  // nvcc converts these numbers to halves
  static float of(std::uint32_t bits, int i) { return static_cast<float>(Format::to_double(bits >> 8 * i & 0xFF)); }
};
struct Float64 {
  static constexpr int kCount = 1;
  static double of(double value, int) { return value; }
};
struct HalfSum {};  // sums that are rounded to half precision at the end

// Multiplies for the lanes of a warp, which wait. For FP8, nvcc makes two products of halves, of the lower and of the upper
// two numbers of each register, and adds C at the end (SASS of nvcc 13.0).
template <class F, int K, bool kHalves, class Lane>
void multiply_for_warp(const Exchanged<Lane*>& exchanged) {
  Lane* lanes[32];
  for (unsigned l = 0; l < 32; ++l) lanes[l] = exchanged.of(l);
  constexpr int kCount = F::kCount, kParts = kCount == 4 ? 2 : 1, kDepth = K / kParts;
  float a[K * 16], b[K * 8], sums[16 * 8];
  const auto each_sum = [&](auto take) {
    for (unsigned l = 0; l < 32; ++l)
      for (unsigned i = 0; i < 4; ++i) take(lanes[l]->sums[i], sums[(l / 4 + i / 2 * 8) * 8 + l % 4 * 2 + i % 2]);
  };
  for (unsigned l = 0; l < 32; ++l)
    for (int r = 0; r < K / 4 / kCount; ++r)
      for (int e = 0; e < kCount; ++e) {
        const int part = e / (kCount / kParts), k = part * kDepth + (4 * r + static_cast<int>(l) % 4) * (kCount / kParts) + e % (kCount / kParts);
        for (int half = 0; half < 2; ++half) a[k * 16 + l / 4 + 8 * half] = F::of(lanes[l]->a[2 * r + half], e);
        b[k * 8 + l / 4] = F::of(lanes[l]->b[r], e);
      }
  if (kParts == 1) each_sum([](float own, float& sum) { sum = own; });
  else std::fill(std::begin(sums), std::end(sums), 0.0f);
  for (int part = 0; part < kParts; ++part) multiply_in_unit(F::kFactor, kHalves, sums, std::span<const float>(a).subspan(part * kDepth * 16, kDepth * 16), std::span<const float>(b).subspan(part * kDepth * 8, kDepth * 8), 8);
  each_sum([](float& own, float sum) { own = kParts == 1 ? sum : own + sum; });
}

// mma.sync.m16n8kK: D = A B + C. Lane 4 g + t has elements of rows g and g + 8 of A, and of column g of B. Of C and D, it
// has the elements 2 t and 2 t + 1 of the rows g and g + 8.
template <class F, int K, class Sum, class... D, class... A, class... B, class... C>
void multiply(std::tuple<D...> d, std::tuple<A...> a, std::tuple<B...> b, std::tuple<C...> c) {
  constexpr int kCount = F::kCount, kRow = 4 * kCount;  // the numbers of a row that one register of each lane holds
  constexpr bool kHalves = std::is_same_v<Sum, HalfSum>;
  using Register = std::conditional_t<std::is_same_v<F, Float64>, double, std::uint32_t>;
  using Value = std::conditional_t<kHalves, float, Sum>;
  static_assert(sizeof...(A) == 16 * K / 32 / kCount && sizeof...(B) == 8 * K / 32 / kCount && sizeof...(C) == (kHalves ? 2 : 4) && sizeof...(D) == sizeof...(C),
                "mma.sync with another number of registers than its shape has");
  struct Lane {
    Register a[sizeof...(A)], b[sizeof...(B)];
    Value sums[4];
  };
  Lane mine;
  int at = 0;
  std::apply([&](const auto&... each) { ((mine.a[at++] = as<Register>(each)), ...); }, a);
  at = 0;
  std::apply([&](const auto&... each) { ((mine.b[at++] = as<Register>(each)), ...); }, b);
  auto& sums = mine.sums;
  at = 0;
  const auto take = [&](const auto& each) {
    if constexpr (kHalves) sums[at] = Half::of(as<std::uint32_t>(each), 0), sums[at + 1] = Half::of(as<std::uint32_t>(each), 1), at += 2;
    else sums[at++] = as<Value>(each);
  };
  std::apply([&](const auto&... each) { (take(each), ...); }, c);
  const Exchanged<Lane*> lanes(~0u, &mine);
  if (lanes.lanes() != ~0u) {
    fail_in_kernel("all lanes of a warp must call mma.sync together");
  } else if constexpr (requires { F::kFactor; }) {
    if (lane() == 0) multiply_for_warp<F, K, kHalves>(lanes);
  } else {
    const int g = static_cast<int>(lane()) / 4, t = static_cast<int>(lane()) % 4;
    for (int i = 0; i < 4; ++i)
      for (int k = 0; k < K; ++k) {
        const Lane &left = *lanes.of(g * 4 + k % kRow / kCount), &right = *lanes.of((2 * t + i % 2) * 4 + k % kRow / kCount);
        sums[i] += F::of(left.a[i / 2 + 2 * (k / kRow)], k % kCount) * F::of(right.b[k / kRow], k % kCount);
      }
  }
  __syncwarp();
  at = 0;
  const auto give = [&](auto& each) {
    if constexpr (kHalves) {
      const __half pair[2] = {__float2half_rn(sums[at]), __float2half_rn(sums[at + 1])};
      std::uint32_t bits;
      std::memcpy(&bits, pair, sizeof bits);
      put(each, bits), at += 2;
    } else {
      put(each, sums[at++]);
    }
  };
  std::apply([&](auto&... each) { (give(each), ...); }, d);
}

template <class Map, class... C>
Tile tile(const Map& map, const C&... coordinates) {
  static_assert(sizeof...(C) >= 1 && sizeof...(C) <= 5, "a tensor with 1 to 5 dimensions");
  return {reinterpret_cast<const CUtensorMap*>(as<std::uint64_t>(map)), sizeof...(C), {as<std::int32_t>(coordinates)...}};
}

template <class V>
std::uint32_t* register_of(V& value) {
  static_assert(sizeof value == 4, "wgmma with sums in registers of another size");
  return reinterpret_cast<std::uint32_t*>(&value);
}

}  // namespace ptx
}  // namespace emulator
