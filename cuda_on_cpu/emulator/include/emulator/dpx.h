// DPX: a sum and a comparison, or two comparisons, of numbers of 32 bits or of pairs of 16 bits, as one function.
// https://docs.nvidia.com/cuda/cuda-c-programming-guide/#dpx
#pragma once
#include <cstdint>

#include "emulator/intrinsics.h"

namespace emulator {
// Calls `function` with the numbers of type T in each half of the words. Its results are the halves of the result.
template <class T, class Function, class... Words>
unsigned in_halves(Function function, Words... words) {
  unsigned out = 0;
  for (int at = 0; at < 32; at += 16) out |= static_cast<unsigned>(static_cast<std::uint16_t>(function(static_cast<T>(words >> at)...))) << at;
  return out;
}
template <class T>
T wrapped_sum(T a, T b) { return static_cast<T>(static_cast<unsigned>(a) + static_cast<unsigned>(b)); }
template <class T>
T larger(T a, T b) { return a < b ? b : a; }
template <class T>
T smaller(T a, T b) { return b < a ? b : a; }
}  // namespace emulator

// WORD and HALF are the types of the numbers, and SIGN is s or u. The expression is of a, b, c and T, their type.
#define EMULATOR_DPX_OF(BEFORE, SIGN, AFTER, WORD, HALF, EXPRESSION)                          \
  inline WORD BEFORE##SIGN##32##AFTER(WORD a, WORD b, WORD c) {                               \
    using T = WORD;                                                                           \
    return EXPRESSION;                                                                        \
  }                                                                                           \
  inline unsigned BEFORE##SIGN##16x2##AFTER(unsigned first, unsigned second, unsigned third) { \
    using T = HALF;                                                                           \
    return emulator::in_halves<T>([](T a, T b, T c) -> T { return EXPRESSION; }, first, second, third); \
  }
#define EMULATOR_DPX(BEFORE, EXPRESSION)                                           \
  EMULATOR_DPX_OF(BEFORE, s, , int, std::int16_t, (EXPRESSION))                    \
  EMULATOR_DPX_OF(BEFORE, u, , unsigned, std::uint16_t, (EXPRESSION))              \
  EMULATOR_DPX_OF(BEFORE, s, _relu, int, std::int16_t, emulator::larger<T>((EXPRESSION), 0))
EMULATOR_DPX(__viaddmax_, emulator::larger<T>(emulator::wrapped_sum(a, b), c))
EMULATOR_DPX(__viaddmin_, emulator::smaller<T>(emulator::wrapped_sum(a, b), c))
EMULATOR_DPX(__vimax3_, emulator::larger<T>(emulator::larger<T>(a, b), c))
EMULATOR_DPX(__vimin3_, emulator::smaller<T>(emulator::smaller<T>(a, b), c))
#undef EMULATOR_DPX
#undef EMULATOR_DPX_OF
inline int __vimax_s32_relu(int a, int b) { return __vimax3_s32(a, b, 0); }
inline int __vimin_s32_relu(int a, int b) { return __vimin3_s32_relu(a, b, b); }
inline unsigned __vimax_s16x2_relu(unsigned a, unsigned b) { return __vimax3_s16x2(a, b, 0); }
inline unsigned __vimin_s16x2_relu(unsigned a, unsigned b) { return __vimin3_s16x2_relu(a, b, b); }

// The predicate, one for each half, says that the result is the first number.
#define EMULATOR_CHOICE_OF(NAME, SIGN, WORD, HALF, OP)                                                      \
  inline WORD NAME##SIGN##32(WORD a, WORD b, bool* first) { return (*first = a OP b) ? a : b; }             \
  inline unsigned NAME##SIGN##16x2(unsigned x, unsigned y, bool* high, bool* low) {                         \
    bool* first = low;                                                                                      \
    const auto choose = [&](HALF a, HALF b) {                                                               \
      const bool is_first = *first = a OP b;                                                                \
      first = high;                                                                                         \
      return is_first ? a : b;                                                                              \
    };                                                                                                      \
    return emulator::in_halves<HALF>(choose, x, y);                                                         \
  }
#define EMULATOR_CHOICE(NAME, OP)                            \
  EMULATOR_CHOICE_OF(NAME, s, int, std::int16_t, OP)         \
  EMULATOR_CHOICE_OF(NAME, u, unsigned, std::uint16_t, OP)
EMULATOR_CHOICE(__vibmax_, >=)
EMULATOR_CHOICE(__vibmin_, <=)
#undef EMULATOR_CHOICE
#undef EMULATOR_CHOICE_OF
