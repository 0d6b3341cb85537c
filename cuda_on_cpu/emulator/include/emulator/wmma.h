// nvcuda::wmma: matrices whose elements are divided among the lanes of a warp. A lane has as many elements as on a GPU,
// but other ones; CUDA does not specify which. Sums of floats and halves are those of an H100.
// https://docs.nvidia.com/cuda/cuda-c-programming-guide/#warp-matrix-functions
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

#include "emulator/bfloat16.h"
#include "emulator/half.h"
#include "emulator/matrix_unit.h"

namespace nvcuda::wmma {

// The numbers of 4 bits and of one bit, of which there are no matrices here.
namespace experimental {
namespace precision {
struct u4;
struct s4;
struct b1;
}  // namespace precision
enum bmmaBitOp { bmmaBitOpXOR = 1, bmmaBitOpAND = 2 };
enum bmmaAccumulateOp { bmmaAccumulateOpPOPC = 1 };
}  // namespace experimental
template <class... A>
void bmma_sync(A&&...) { EMULATOR_LACK("bmma_sync"); }


struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
namespace precision {
struct tf32;
}
enum layout_t { mem_row_major, mem_col_major };

// The number of elements per lane; 0 for a shape that no GPU has. Half-precision A and B are kept twice.
template <class Use, int M, int N, int K, class T>
constexpr int elements() {
  constexpr bool a = std::is_same_v<Use, matrix_a>, b = std::is_same_v<Use, matrix_b>;
  constexpr bool k16 = K == 16 && ((M == 16 && N == 16) || (M == 32 && N == 8) || (M == 8 && N == 32));
  constexpr int own = (a ? M * K : b ? N * K : M * N) / 32;
  if (std::is_same_v<T, __half>) return !k16 ? 0 : a || b ? 16 : 8;
  if (std::is_same_v<T, float>) return !a && !b && (k16 || (M == 16 && N == 16 && K == 8)) ? 8 : 0;
  if (std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, signed char> || std::is_same_v<T, unsigned char> || std::is_same_v<T, char>) return k16 && (a || b) ? own : 0;
  if (std::is_same_v<T, int>) return k16 && !a && !b ? 8 : 0;
  if (std::is_same_v<T, precision::tf32>) return M == 16 && N == 16 && K == 8 && (a || b) ? 4 : 0;
  if (std::is_same_v<T, double>) return M == 8 && N == 8 && K == 4 ? own : 0;
  return 0;
}

template <class T>
struct storage {
  using type = T;
};
template <>
struct storage<precision::tf32> {
  using type = float;
};

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  static constexpr int num_elements = elements<Use, M, N, K, T>(), num_storage_elements = num_elements;
  static_assert(num_elements > 0, "no tensor core multiplies matrices of this shape and type");
  static_assert(std::is_same_v<Use, accumulator> == std::is_void_v<Layout>, "A and B have a layout, an accumulator has none");
  using element_type = T;
  using storage_element_type = typename storage<T>::type;
  storage_element_type x[num_elements];
};

namespace details {

template <class Use, int M, int N, int K>
constexpr int rows = std::is_same_v<Use, matrix_b> ? K : M;
template <class Use, int M, int N, int K>
constexpr int columns = std::is_same_v<Use, matrix_a> ? K : N;

// Calls function(i, row, column) for each element of the calling lane. The element at (row, column) has the number
// row * columns + column and belongs to lane number / num_elements.
template <class Function, class Use, int M, int N, int K, class T, class Layout>
void each_of_mine(const fragment<Use, M, N, K, T, Layout>&, Function function) {
  using F = fragment<Use, M, N, K, T, Layout>;
  constexpr int height = rows<Use, M, N, K>, width = columns<Use, M, N, K>;
  for (int i = 0; i < F::num_elements; ++i) {
    const int number = (static_cast<int>(emulator::lane()) * F::num_elements + i) % (height * width);
    function(i, number / width, number % width);
  }
}

// Checks that address and leading dimension have the alignment that a GPU requires: 16 bytes, or 8 bytes in double
// precision, because so many bytes are read at once.
template <class T>
void check(const T* address, unsigned leading) {
  constexpr std::size_t kPiece = sizeof(T) == 8 ? 8 : 16;
  if (reinterpret_cast<std::uintptr_t>(address) % kPiece || leading * sizeof(T) % kPiece)
    emulator::fail_in_kernel("a wmma load or store needs an aligned address, and a leading dimension that is a multiple of 16 bytes");
}

// Rounds a number as a tensor core does before it multiplies. TF32 keeps ten fraction bits.
template <class T, class S>
auto operand(S value) {
  if constexpr (std::is_same_v<T, precision::tf32>) return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & ~0x1FFFu);
  else if constexpr (std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>) return emulator::widened(value);
  else if constexpr (std::is_integral_v<T>) return static_cast<int>(value);
  else return value;
}
template <class T, class Sum>
T result(Sum value) {
  if constexpr (std::is_same_v<T, __half>) return __float2half(value);
  else return value;
}

}  // namespace details

template <class Use, int M, int N, int K, class T, class Layout, class Value>
void fill_fragment(fragment<Use, M, N, K, T, Layout>& f, const Value& value) {
  for (auto& element : f.x) element = static_cast<typename storage<T>::type>(value);
}

template <class Use, int M, int N, int K, class T, class Layout, class S>
void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& f, const S* address, unsigned leading) {
  static_assert(!std::is_void_v<Layout>, "an accumulator is loaded with its layout as the last argument");
  __syncwarp();
  details::check(address, leading);
  details::each_of_mine(f, [&](int i, int row, int column) {
    f.x[i] = address[std::is_same_v<Layout, row_major> ? row * std::size_t(leading) + column : column * std::size_t(leading) + row];
  });
}
template <int M, int N, int K, class T, class S>
void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const S* address, unsigned leading, layout_t layout) {
  __syncwarp();
  details::check(address, leading);
  details::each_of_mine(f, [&](int i, int row, int column) {
    f.x[i] = address[layout == mem_row_major ? row * std::size_t(leading) + column : column * std::size_t(leading) + row];
  });
}
template <int M, int N, int K, class T, class S>
void store_matrix_sync(S* address, const fragment<accumulator, M, N, K, T>& f, unsigned leading, layout_t layout) {
  __syncwarp();
  details::check(address, leading);
  details::each_of_mine(f, [&](int i, int row, int column) {
    address[layout == mem_row_major ? row * std::size_t(leading) + column : column * std::size_t(leading) + row] = f.x[i];
  });
  __syncwarp();
}

// The lowest lane multiplies for all lanes. It reads their fragments while they wait.
template <int M, int N, int K, class D, class A, class LayoutA, class B, class LayoutB, class C>
void mma_sync(fragment<accumulator, M, N, K, D>& d, const fragment<matrix_a, M, N, K, A, LayoutA>& a,
              const fragment<matrix_b, M, N, K, B, LayoutB>& b, const fragment<accumulator, M, N, K, C>& c, bool saturate = false) {
  struct Lane {
    fragment<accumulator, M, N, K, D>* d;
    const fragment<matrix_a, M, N, K, A, LayoutA>* a;
    const fragment<matrix_b, M, N, K, B, LayoutB>* b;
    const fragment<accumulator, M, N, K, C>* c;
  } mine{&d, &a, &b, &c};
  const emulator::Exchanged<Lane*> lanes(~0u, &mine);
  if (lanes.lanes() != ~0u) {
    emulator::fail_in_kernel("all lanes of a warp must call a wmma operation together");
  } else if (emulator::lane() == 0) {
    using Sum = decltype(details::operand<A>(a.x[0]) * details::operand<B>(b.x[0]));
    Sum left[K * M], right[K * N], sums[M * N];
    for (int k = 0; k < K; ++k)
      for (int row = 0; row < M; ++row) left[k * M + row] = details::operand<A>(lanes.of((row * K + k) / a.num_elements)->a->x[(row * K + k) % a.num_elements]);
    for (int i = 0; i < K * N; ++i) right[i] = details::operand<B>(lanes.of(i / b.num_elements)->b->x[i % b.num_elements]);
    for (int i = 0; i < M * N; ++i) sums[i] = details::operand<C>(lanes.of(i / c.num_elements)->c->x[i % c.num_elements]);
    if constexpr (std::is_same_v<Sum, float>) {
      constexpr bool tf32 = std::is_same_v<A, precision::tf32>, halves = std::is_same_v<C, __half> && std::is_same_v<D, __half>;
      constexpr auto factor = tf32 ? emulator::Factor::kTf32 : std::is_same_v<A, __half> ? emulator::Factor::kHalf : emulator::Factor::kBfloat16;
      constexpr int depth = tf32 ? 4 : K;  // of one instruction, by the SASS of nvcc 13.0
      for (int k = 0; k < K; k += depth) emulator::multiply_in_unit(factor, halves, sums, std::span<const float>(left).subspan(k * M, depth * M), std::span<const float>(right).subspan(k * N, depth * N), N);
    } else {
      for (int row = 0; row < M; ++row)
        for (int k = 0; k < K; ++k)
          for (int n = 0; n < N; ++n) sums[row * N + n] += left[k * M + row] * right[k * N + n];
    }
    for (int i = 0; i < M * N; ++i) lanes.of(i / d.num_elements)->d->x[i % d.num_elements] = details::result<D>(sums[i]);
  }
  __syncwarp();
}

// Rounds to TF32: to nearest, ties away from zero, as the instruction cvt.rna.tf32.f32 does.
inline float __float_to_tf32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return (bits & 0x7F800000) == 0x7F800000 ? value : std::bit_cast<float>((bits + 0x1000) & ~0x1FFFu);
}

}  // namespace nvcuda::wmma
