// Runs products of warpgroups.
#include "wgmma.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "aligned_sums.h"
#include "emulator/bfloat16.h"
#include "emulator/half.h"
#include "emulator/profile.h"
#include "emulator/sanitize.h"
#include "emulator/tiny_float.h"
#include "pending.h"

namespace emulator {
namespace {

constexpr unsigned kRows = 64, kDepthBytes = 32;
// What the registers of sums hold until a thread has waited for them: NaN, also as a pair of halves.
constexpr std::uint32_t kArbitrary = 0xFFFEFFFE;

unsigned bytes_of(WgmmaType type) { return type == WgmmaType::kTf32 ? 4 : type == WgmmaType::kHalf || type == WgmmaType::kBfloat16 ? 2 : 1; }

Warpgroup& mine() { return core->pending().warpgroup(thread_index()); }

// ----------------------------------------------------------------------------------------------- registers

// Calls each(register, row, column) for the registers of a thread; a register with two halves also has the next column.
template <class Each>
void for_registers(const WgmmaShape& shape, unsigned thread, Each each) {
  const unsigned row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
  unsigned at = 0;
  for (unsigned n = 0; n < shape.columns; n += 8)
    for (unsigned lower = 0; lower < 2; ++lower)
      for (unsigned i = 0; i < 2; i += shape.sum == WgmmaSum::kHalf ? 2 : 1) each(at++, row + 8 * lower, n + column + i);
}
unsigned registers_of(const WgmmaShape& shape) { return shape.columns / (shape.sum == WgmmaSum::kHalf ? 4 : 2); }

float of_half(std::uint32_t bits) { return static_cast<float>(widened(std::bit_cast<__half>(static_cast<std::uint16_t>(bits)))); }
std::uint32_t to_half(float value) { return std::bit_cast<std::uint16_t>(__float2half_rn(value)); }

void take(const Target& target, unsigned thread) {
  const WgmmaShape& shape = target.shape;
  for_registers(shape, thread, [&](unsigned i, unsigned row, unsigned column) {
    const std::uint32_t bits = *target.registers[i];
    const unsigned at = row * shape.columns + column;
    if (shape.sum == WgmmaSum::kInteger) target.sums->integers[at] = static_cast<std::int32_t>(bits);
    else if (shape.sum == WgmmaSum::kFloat) target.sums->floats[at] = std::bit_cast<float>(bits);
    else target.sums->floats[at] = of_half(bits & 0xFFFF), target.sums->floats[at + 1] = of_half(bits >> 16);
  });
}

// Registers that the kernel has written meanwhile keep what it wrote.
void give(const Target& target, unsigned thread) {
  const WgmmaShape& shape = target.shape;
  for_registers(shape, thread, [&](unsigned i, unsigned row, unsigned column) {
    std::uint32_t& bits = *target.registers[i];
    const unsigned at = row * shape.columns + column;
    if (bits != kArbitrary) return;
    if (shape.sum == WgmmaSum::kInteger) bits = static_cast<std::uint32_t>(target.sums->integers[at]);
    else if (shape.sum == WgmmaSum::kFloat) bits = std::bit_cast<std::uint32_t>(target.sums->floats[at]);
    else bits = to_half(target.sums->floats[at]) | to_half(target.sums->floats[at + 1]) << 16;
  });
}

// ----------------------------------------------------------------------------------------------- matrices

// A descriptor of a matrix in shared memory. Offsets are in bytes.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#asynchronous-warpgroup-level-matrix-shared-memory-layout-matrix-descriptor
struct Matrix {
  char* start;
  std::uint64_t leading, stride;
  unsigned swizzle;  // in bytes; 16 for none
  SourcePlace place;

  Matrix(std::uint64_t bits, SourcePlace place)
      : start(core->matrix_at(static_cast<std::uint32_t>(bits & 0x3FFF) << 4)), leading((bits >> 16 & 0x3FFF) << 4), stride((bits >> 32 & 0x3FFF) << 4), place(place) {
    constexpr unsigned kSwizzles[] = {16, 128, 64, 32};
    swizzle = kSwizzles[bits >> 62];
    if (bits >> 49 & 7) fail_at(place, "wgmma with a base offset in its descriptor, which the emulation does not know");
    if (!start) fail_at(place, "wgmma with a descriptor whose address is not in shared memory: its lowest 14 bits are (address & 0x3FFFF) >> 4");
  }
  // The 16 bytes at an offset.
  const char* piece(std::uint64_t offset) const {
    const char* found = swizzled(start + offset, swizzle);
    if (core->holds(found) && core->holds(found + 15)) return found;
    fail_at(place, "wgmma with a descriptor of a matrix that exceeds shared memory: check its leading and stride offsets, in units of 16 bytes, and its swizzle");
    return nullptr;
  }
  // The 16 bytes with numbers `16 j` bytes along the depth, of row `row`; the rows lie along the depth (K-major).
  const char* of_row(unsigned row, unsigned j) const {
    return piece(row % 8 * swizzle + row / 8 * stride + j * (swizzle == 16 ? leading : 16));
  }
  // Calls each(piece) for the pieces of the rows from `first` to `end`, multiples of 8. `depth` counts numbers.
  template <class Each>
  void for_pieces(unsigned first, unsigned end, bool transposed, unsigned depth, Each each) const {
    if (!start) return;
    for (unsigned row = first; !transposed && row < end; ++row)
      for (unsigned j = 0; j < 2; ++j) each(of_row(row, j));
    for (unsigned k = 0; transposed && k < depth; ++k)
      for (unsigned j = first / 8; j < end / 8; ++j) each(of_depth(k, j));
  }
  // The 8 numbers of 16 bits of rows 8 j to 8 j + 7 at depth `k`; the numbers of different rows are neighbours (MN-major).
  const char* of_depth(unsigned k, unsigned j) const {
    const unsigned wide = swizzle / 16;
    if (wide == 1) return piece(j * stride + k / 8 * leading + k % 8 * 16);
    return piece(j % wide * 16 + j / wide * leading + k % 8 * swizzle + k / 8 * stride);
  }
};

template <class T>
T number(WgmmaType type, const char* at) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, at, bytes_of(type));
  switch (type) {
    case WgmmaType::kHalf: return static_cast<T>(of_half(bits));
    case WgmmaType::kBfloat16: return static_cast<T>(std::bit_cast<float>(bits << 16));
    case WgmmaType::kTf32: return static_cast<T>(std::bit_cast<float>(bits & ~0x1FFFu));
    case WgmmaType::kE4M3: return static_cast<T>(E4M3::to_double(static_cast<std::uint8_t>(bits)));
    case WgmmaType::kE5M2: return static_cast<T>(E5M2::to_double(static_cast<std::uint8_t>(bits)));
    case WgmmaType::kS8: return static_cast<T>(static_cast<std::int8_t>(bits));
    case WgmmaType::kU8: return static_cast<T>(bits);
  }
  return T{};
}

// The numbers of a matrix with `rows` rows, depth first.
template <class T>
std::vector<T> numbers(const Matrix& matrix, WgmmaType type, unsigned rows, bool transposed, bool negates) {
  const unsigned size = bytes_of(type), depth = kDepthBytes / size, each = 16 / size;
  std::vector<T> out(depth * rows);
  const auto put = [&](unsigned row, unsigned k, const char* at) { out[k * rows + row] = negates ? -number<T>(type, at) : number<T>(type, at); };
  if (!matrix.start) return out;
  if (transposed) {
    for (unsigned k = 0; k < depth; ++k)
      for (unsigned j = 0; j < rows / 8; ++j)
        if (const char* piece = matrix.of_depth(k, j))
          for (unsigned i = 0; i < 8; ++i) put(8 * j + i, k, piece + i * size);
  } else {
    for (unsigned row = 0; row < rows; ++row)
      for (unsigned j = 0; j < 2; ++j)
        if (const char* piece = matrix.of_row(row, j))
          for (unsigned i = 0; i < each; ++i) put(row, j * each + i, piece + i * size);
  }
  return out;
}

template <class T>
std::vector<T> numbers_of_registers(const std::vector<std::uint32_t>& registers, WgmmaType type, bool negates) {
  const unsigned size = bytes_of(type), each = 4 / size;
  std::vector<T> out(kDepthBytes / size * kRows);
  for (unsigned thread = 0; thread < kWarpgroup; ++thread)
    for (unsigned i = 0; i < 4; ++i)
      for (unsigned e = 0; e < each; ++e) {
        const unsigned row = thread / 32 * 16 + thread % 32 / 4 + i % 2 * 8, k = (i / 2 * 4 + thread % 4) * each + e;
        const T value = number<T>(type, reinterpret_cast<const char*>(&registers[4 * thread + i]) + e * size);
        out[k * kRows + row] = negates ? -value : value;
      }
  return out;
}

__attribute__((optimize("O3"))) void add_integers(std::int32_t* __restrict__ sums, const std::int32_t* __restrict__ a, const std::int32_t* __restrict__ b, unsigned depth, unsigned columns) {
  for (unsigned row = 0; row < kRows; ++row)
    for (unsigned k = 0; k < depth; ++k) {
      const std::int32_t factor = a[k * kRows + row];
      for (unsigned column = 0; column < columns; ++column) sums[row * columns + column] += factor * b[k * columns + column];
    }
}

int least_exponent(WgmmaType type) { return type == WgmmaType::kE4M3 ? -6 : type == WgmmaType::kHalf || type == WgmmaType::kE5M2 ? -14 : -126; }

Alignment alignment_of(const WgmmaShape& shape) {
  const bool tiny = bytes_of(shape.a) == 1;
  return {tiny ? 13 : 25, tiny ? 13 : 23, least_exponent(shape.a), least_exponent(shape.b), shape.sum == WgmmaSum::kHalf};
}

template <class T>
void run(const Product& product, std::vector<T>& sums) {
  const WgmmaShape& shape = product.shape;
  const unsigned depth = kDepthBytes / bytes_of(shape.a);
  const auto a = product.a_registers.empty() ? numbers<T>(Matrix(product.a, product.place), shape.a, kRows, shape.transposes_a, shape.negates_a)
                                             : numbers_of_registers<T>(product.a_registers, shape.a, shape.negates_a);
  const auto b = numbers<T>(Matrix(product.b, product.place), shape.b, shape.columns, shape.transposes_b, shape.negates_b);
  if (!product.adds) std::fill(sums.begin(), sums.end(), T{});
  if constexpr (std::is_same_v<T, float>) add_aligned(alignment_of(shape), sums, a, b, shape.columns);
  else add_integers(sums.data(), a.data(), b.data(), depth, shape.columns);
}

void run_until(Warpgroup& group, std::uint64_t end) {
  while (group.run < end) {
    const Product& product = group.products.front();
    product.shape.sum == WgmmaSum::kInteger ? run(product, product.sums->integers) : run(product, product.sums->floats);
    group.products.pop_front();
    ++group.run;
  }
}

// Returns the target of the running thread that has these registers, or a new one.
Target& target_of(Warpgroup::Lane& lane, const WgmmaShape& shape, std::uint32_t* const* registers, bool& fresh) {
  for (Target& each : lane.targets)
    if (each.registers[0] == registers[0] && each.shape == shape) return fresh = false, each;
  fresh = true;
  return lane.targets.emplace_back(Target{{registers, registers + registers_of(shape)}, shape, nullptr, 0});
}

// Reports what one warp reads: its 16 rows of A, and B.
void report_reads(const Product& product, unsigned warp, sanitize::Reads reads) {
  const WgmmaShape& shape = product.shape;
  const auto report = [&](const char* piece) {
    if (piece) sanitize::unit_reads(piece, 16, product.place, reads);
  };
  const unsigned depth = kDepthBytes / bytes_of(shape.a);
  if (product.a_registers.empty()) Matrix(product.a, product.place).for_pieces(16 * warp, 16 * warp + 16, shape.transposes_a, depth, report);
  Matrix(product.b, product.place).for_pieces(0, shape.columns, shape.transposes_b, depth, report);
}

}  // namespace

void wgmma_begin(const WgmmaShape& shape, std::uint32_t* const* registers, std::uint64_t a, const std::uint32_t* a_registers, std::uint64_t b, bool adds, SourcePlace place) {
  const unsigned thread = thread_index() % kWarpgroup;
  Warpgroup& group = mine();
  Warpgroup::Lane& lane = group.lanes[thread];
  const std::uint64_t number = lane.issued++;
  bool fresh;
  Target& target = target_of(lane, shape, registers, fresh);
  if (number == group.run + group.products.size()) {  // the first thread of the warpgroup
    if (fresh) {
      target.sums = std::make_shared<Sums>();
      const unsigned count = kRows * shape.columns;
      shape.sum == WgmmaSum::kInteger ? target.sums->integers.resize(count) : target.sums->floats.resize(count);
    }
    group.products.push_back({shape, target.sums, a, b, std::vector<std::uint32_t>(a_registers ? 4 * kWarpgroup : 0), adds, place});
    if (profile::on) profile::multiplied(place, std::uint64_t{2} * kRows * shape.columns * (kDepthBytes / bytes_of(shape.a)));
  }
  Product& product = group.products[number - group.run];
  if (!(product.shape == shape)) return fail_at(place, "the threads of a warpgroup call different wgmma instructions");
  target.sums = product.sums;
  target.last = number + 1;
  if (fresh && adds) take(target, thread);
  if (a_registers) std::copy(a_registers, a_registers + 4, product.a_registers.begin() + 4 * thread);
  for (std::uint32_t* each : target.registers) *each = kArbitrary;
  if (sanitize::on) {
    const sanitize::Reads reads{thread_index() / kWarpgroup, number + 1};
    sanitize::unit_fills(target.registers, place, reads);
    if (thread % 32 == 0) report_reads(product, thread / 32, reads);
  }
  ++product.issued;
}

namespace {

class Issued : public Waiting {
 public:
  Issued(const Warpgroup& group, std::uint64_t end, bool may_end, SourcePlace place) : Waiting(place), group_(group), end_(end), may_end_(may_end) {}
  bool holds() override { return group_.run >= end_ || last().issued == kWarpgroup; }
  bool ends() const override { return may_end_; }
  std::string text() const override {
    return "for a wgmma that only " + std::to_string(last().issued) + " of the 128 threads of its warpgroup have called";
  }

 private:
  const Product& last() const { return group_.products[end_ - 1 - group_.run]; }
  const Warpgroup& group_;
  std::uint64_t end_;
  bool may_end_;
};

// Runs the products before number `end` when all threads of the warpgroup have called them, and gives the running thread
// its sums. With `may_end`, returns without that if no other thread can go on.
void finish_until(std::uint64_t end, bool may_end, SourcePlace place) {
  Warpgroup& group = mine();
  Issued issued(group, end, may_end, place);
  if (!wait_until(issued)) return;
  run_until(group, end);
  const unsigned thread = thread_index() % kWarpgroup;
  std::erase_if(group.lanes[thread].targets, [&](const Target& each) { return each.last <= end ? (give(each, thread), true) : false; });
}

}  // namespace

void wgmma_commit(SourcePlace place) {
  Warpgroup::Lane& lane = mine().lanes[thread_index() % kWarpgroup];
  lane.committed.push_back(lane.issued);
  if (lane.issued) finish_until(lane.issued, true, place);
}

void wgmma_wait(unsigned newest_left, SourcePlace place) {
  Warpgroup::Lane& lane = mine().lanes[thread_index() % kWarpgroup];
  if (lane.committed.size() <= newest_left) return;
  const std::uint64_t end = lane.committed[lane.committed.size() - 1 - newest_left];
  lane.committed.erase(lane.committed.begin(), lane.committed.end() - newest_left);
  if (end) finish_until(end, false, place);
  if (sanitize::on) sanitize::reads_ended({thread_index() / kWarpgroup, end});
}

}  // namespace emulator
