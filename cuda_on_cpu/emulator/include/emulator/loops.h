// What counted code reports, which includes this header: the loops that nvcc unrolls by four (unrolled_loops.py), and
// updates that count up (counted_updates.py).
#pragma once
#include <type_traits>

extern "C" int emulator_begins_loop(bool remainder_last);  // returns 0, which g++ does not know
extern "C" int emulator_ends_loop();                         // returns -1
// g++ may take it for a function of the loop and its counter, so that it optimises the loop as without this call.
extern "C" bool emulator_begins_step(int loop, unsigned long counter) noexcept __attribute__((const));

extern "C" void emulator_counts_up();  // the next atomic update adds 1, and its result is not used: see counted_updates.py

namespace emulator {
template <class T>
inline bool begins_step(int loop, T counter) {
  if constexpr (std::is_scalar_v<T>) return emulator_begins_step(loop, (unsigned long)counter);
  else return true;
}
}  // namespace emulator

// A profile counts what the kernel does, without the emulator's check of its launch bounds.
#undef EMULATOR_LAUNCH_BOUNDS
#define EMULATOR_LAUNCH_BOUNDS(...)

// A loop of one step around the loop. `remainder_last` says that nvcc puts the steps that remain behind the others.
#define EMULATOR_UNROLLED(remainder_last) for (int emulator_loop = emulator_begins_loop(remainder_last); emulator_loop >= 0; emulator_loop = emulator_ends_loop())
