// cuRAND's device functions for its default generator XORWOW and for Philox4x32-10, with the numbers of a GPU.
// https://docs.nvidia.com/cuda/curand/device-api-overview.html
// Philox: Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011. XORWOW: Marsaglia, Xorshift RNGs, 2003.
#pragma once
#include <cstdint>

#include "emulator/kernel.h"

// The normal numbers that wait for the next call, because they are made in pairs.
struct EmulatorNormals {
  bool has_float = false, has_log = false, has_double = false;
  float next = 0;
  double next_double = 0;
};

struct curandStateXORWOW : EmulatorNormals {
  unsigned d, v[5];
};
struct curandStatePhilox4_32_10 : EmulatorNormals {
  unsigned __int128 counter;
  unsigned key[2], output[4], used;  // `used` is how many of the output's numbers are taken
};
typedef curandStateXORWOW curandStateXORWOW_t, curandState_t, curandState;
typedef curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;

namespace emulator::random {

inline void step(unsigned (&v)[5]) {
  const unsigned t = v[0] ^ v[0] >> 2;
  for (int i = 0; i < 4; ++i) v[i] = v[i + 1];
  v[4] = v[4] ^ v[4] << 4 ^ t ^ t << 1;
}

constexpr int kSequence = 67;  // a sequence has 2^67 numbers
// Makes n * 2^first steps.
void jump(unsigned (&v)[5], unsigned long long n, int first);

inline void refresh(curandStatePhilox4_32_10& state) {
  unsigned c[4], key[2] = {state.key[0], state.key[1]};
  for (int i = 0; i < 4; ++i) c[i] = static_cast<unsigned>(state.counter >> 32 * i);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * c[0], b = std::uint64_t{0xCD9E8D57} * c[2];
    const unsigned next[4] = {static_cast<unsigned>(b >> 32) ^ c[1] ^ key[0], static_cast<unsigned>(b), static_cast<unsigned>(a >> 32) ^ c[3] ^ key[1], static_cast<unsigned>(a)};
    for (int i = 0; i < 4; ++i) c[i] = next[i];
    key[0] += 0x9E3779B9, key[1] += 0xBB67AE85;
  }
  for (int i = 0; i < 4; ++i) state.output[i] = c[i];
}

inline float uniform(unsigned x) { return x * 2.3283064e-10f + 2.3283064e-10f / 2.0f; }
inline double uniform(unsigned x, unsigned y) { return (x ^ static_cast<unsigned long long>(y) << 21) * 0x1p-53 + 0x1p-54; }
// Two normal numbers from two uniform ones, by Box and Muller.
inline float2 normals(unsigned x, unsigned y) {
  constexpr float kTurn = 2.3283064e-10f * 6.2831855f;
  const float u = uniform(x), v = y * kTurn + kTurn / 2, s = sqrtf(-2.0f * logf(u));
  return {s * sinf(v), s * cosf(v)};
}
inline double2 normals(unsigned x0, unsigned x1, unsigned y0, unsigned y1) {
  const double s = sqrt(-2.0 * log(uniform(x0, x1))), v = 2.0 * uniform(y0, y1);
  return {s * sinpi(v), s * cospi(v)};
}

}  // namespace emulator::random

inline unsigned curand(curandStateXORWOW* state) {
  emulator::random::step(state->v);
  state->d += 362437;
  return state->v[4] + state->d;
}
inline void skipahead(unsigned long long n, curandStateXORWOW* state) {
  emulator::random::jump(state->v, n, 0);
  state->d += 362437 * static_cast<unsigned>(n);
}
inline void skipahead_sequence(unsigned long long n, curandStateXORWOW* state) { emulator::random::jump(state->v, n, emulator::random::kSequence); }
inline void curand_init(unsigned long long seed, unsigned long long sequence, unsigned long long offset, curandStateXORWOW* state) {
  const unsigned low = 1099087573u * (static_cast<unsigned>(seed) ^ 0xAAD26B49), high = 2591861531u * (static_cast<unsigned>(seed >> 32) ^ 0xF7DCEFDD);
  *state = {{}, 6615241 + high + low, {123456789 + low, 362436069 ^ low, 521288629 + high, 88675123 ^ high, 5783321 + low}};
  skipahead_sequence(sequence, state);
  skipahead(offset, state);
}

inline void skipahead(unsigned long long n, curandStatePhilox4_32_10* state) {
  state->used += n % 4;
  state->counter += n / 4 + state->used / 4;
  state->used %= 4;
  emulator::random::refresh(*state);
}
inline void skipahead_sequence(unsigned long long n, curandStatePhilox4_32_10* state) {
  state->counter += static_cast<unsigned __int128>(n) << 64;
  emulator::random::refresh(*state);
}
inline void curand_init(unsigned long long seed, unsigned long long sequence, unsigned long long offset, curandStatePhilox4_32_10* state) {
  *state = {{}, static_cast<unsigned __int128>(sequence) << 64, {static_cast<unsigned>(seed), static_cast<unsigned>(seed >> 32)}, {}, 0};
  skipahead(offset, state);
}
inline unsigned curand(curandStatePhilox4_32_10* state) {
  const unsigned out = state->output[state->used];
  if (++state->used == 4) skipahead(0, state);
  return out;
}
inline uint4 curand4(curandStatePhilox4_32_10* state) {
  unsigned out[4];
  for (unsigned& each : out) each = curand(state);
  return {out[0], out[1], out[2], out[3]};
}
inline float4 curand_uniform4(curandStatePhilox4_32_10* state) {
  const uint4 x = curand4(state);
  using emulator::random::uniform;
  return {uniform(x.x), uniform(x.y), uniform(x.z), uniform(x.w)};
}
inline double curand_uniform_double(curandStatePhilox4_32_10* state) { return curand(state) * 0x1p-32 + 0x1p-32; }
inline double2 curand_uniform2_double(curandStatePhilox4_32_10* state) {
  const uint4 x = curand4(state);
  return {emulator::random::uniform(x.x, x.y), emulator::random::uniform(x.z, x.w)};
}
inline float4 curand_normal4(curandStatePhilox4_32_10* state) {
  const uint4 x = curand4(state);
  const float2 a = emulator::random::normals(x.x, x.y), b = emulator::random::normals(x.z, x.w);
  return {a.x, a.y, b.x, b.y};
}
inline double curand_uniform_double(curandStateXORWOW* state) {
  const unsigned x = curand(state), y = curand(state);
  return emulator::random::uniform(x, y);
}

#define EMULATOR_RANDOM(STATE)                                                                                       \
  inline float curand_uniform(STATE* state) { return emulator::random::uniform(curand(state)); }                     \
  inline float2 curand_normal2(STATE* state) {                                                                       \
    const unsigned x = curand(state), y = curand(state);                                                             \
    return emulator::random::normals(x, y);                                                                          \
  }                                                                                                                  \
  inline float curand_normal(STATE* state) {                                                                         \
    if (state->has_float) return state->has_float = false, state->next;                                              \
    const float2 both = curand_normal2(state);                                                                       \
    state->has_log = false, state->has_float = true, state->next = both.y;                                           \
    return both.x;                                                                                                   \
  }                                                                                                                  \
  inline float2 curand_log_normal2(STATE* state, float mean, float deviation) {                                      \
    const float2 both = curand_normal2(state);                                                                       \
    return {expf(mean + deviation * both.x), expf(mean + deviation * both.y)};                                       \
  }                                                                                                                  \
  inline float curand_log_normal(STATE* state, float mean, float deviation) {                                        \
    if (state->has_log) return state->has_log = false, state->next;                                                  \
    const float2 both = curand_log_normal2(state, mean, deviation);                                                  \
    state->has_float = false, state->has_log = true, state->next = both.y;                                           \
    return both.x;                                                                                                   \
  }                                                                                                                  \
  inline double2 curand_normal2_double(STATE* state) {                                                               \
    unsigned x[4];                                                                                                   \
    for (unsigned& each : x) each = curand(state);                                                                   \
    return emulator::random::normals(x[0], x[1], x[2], x[3]);                                                        \
  }                                                                                                                  \
  inline double curand_normal_double(STATE* state) {                                                                 \
    if (state->has_double) return state->has_double = false, state->next_double;                                     \
    const double2 both = curand_normal2_double(state);                                                               \
    state->has_double = true, state->next_double = both.y;                                                           \
    return both.x;                                                                                                   \
  }
EMULATOR_RANDOM(curandStateXORWOW)
EMULATOR_RANDOM(curandStatePhilox4_32_10)
#undef EMULATOR_RANDOM
