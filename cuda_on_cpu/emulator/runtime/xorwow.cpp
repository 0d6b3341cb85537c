// Jumps of cuRAND's generator XORWOW: many steps at once.
#include <bitset>
#include <vector>

#include "emulator/curand_device.h"

namespace emulator::random {
namespace {

// The steps are linear in the generator's 160 bits. Row i of `power(n)` is what bit i becomes by 2^n steps.
constexpr int kBits = 160, kPowers = kSequence + 64;
using Bits = std::bitset<kBits>;
using Matrix = std::vector<Bits>;

Bits times(const Bits& x, const Matrix& matrix) {
  Bits out;
  for (int i = 0; i < kBits; ++i)
    if (x[i]) out ^= matrix[i];
  return out;
}

std::vector<Matrix> powers() {
  std::vector<Matrix> out(1, Matrix(kBits));
  for (int i = 0; i < kBits; ++i) {
    unsigned v[5] = {};
    v[i / 32] = 1u << i % 32;
    step(v);
    for (int bit = 0; bit < kBits; ++bit) out[0][i][bit] = v[bit / 32] >> bit % 32 & 1;
  }
  while (out.size() < kPowers) {
    Matrix next(kBits);
    for (int i = 0; i < kBits; ++i) next[i] = times(out.back()[i], out.back());
    out.push_back(next);
  }
  return out;
}

}  // namespace

void jump(unsigned (&v)[5], unsigned long long n, int first) {
  if (!n) return;
  static const auto* all = new std::vector<Matrix>(powers());
  Bits bits;
  for (int i = 0; i < kBits; ++i) bits[i] = v[i / 32] >> i % 32 & 1;
  for (; n; n >>= 1, ++first)
    if (n & 1) bits = times(bits, (*all)[first]);
  for (int i = 0; i < kBits; ++i) v[i / 32] = (v[i / 32] & ~(1u << i % 32)) | static_cast<unsigned>(bits[i]) << i % 32;
}

}  // namespace emulator::random
