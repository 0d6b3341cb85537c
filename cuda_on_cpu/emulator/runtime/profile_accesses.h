// Counts what a request does: one memory access of a warp, which is those of its threads together. For the command
// `profile`.
#pragma once
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "emulator/scheduler.h"

namespace emulator::profile {

enum class Space : std::uint8_t { kGlobal, kShared };
enum class Kind : std::uint8_t { kLoad, kStore, kAtomic, kCopy };

// One access of a warp: the addresses of the threads that take part, each of which accesses `bytes` bytes.
struct Request {
  std::uint32_t lanes = 0;
  std::uint32_t bytes = 0;
  std::uintptr_t address[kWarpSize];
};

// What the requests of one instruction do. The sums are over its requests.
struct Traffic {
  std::uint64_t requests = 0, asked_bytes = 0;
  std::uint64_t sectors = 0, least_sectors = 0;        // global memory: sectors of 32 bytes; again for each update that waits
  std::uint64_t aligned_sectors = 0;                   // if each contiguous run of addresses began at a sector
  std::uint64_t wavefronts = 0, least_wavefronts = 0;  // shared memory: accesses to its 32 banks
  std::uint64_t conflicts = 0;                         // shared memory: those of them that Nsight Compute calls bank conflicts
  std::uint64_t repeated = 0;                          // atomics: further updates of the address that most threads update
  std::uint64_t threads = 0;                           // accesses of threads in the requests
  std::uint64_t merged = 0;                            // accesses of threads that became a part of a wider request
  std::uint64_t left_out = 0;                          // accesses of threads that were not recorded
  std::uint64_t ways = 0;                              // shared memory: the most wavefronts that one part of a request needs
  std::uint64_t distance = 0;                          // in that request: the least between addresses of neighbouring threads

  void add(const Request& request, Space space, Kind kind, Update update);
  void add(const Traffic& other);
};

// The sums of Traffic and their names in the text of a profile, without `ways` and `distance`, which are no sums.
constexpr std::pair<const char*, std::uint64_t Traffic::*> kSums[] = {
  {"requests", &Traffic::requests}, {"asked_bytes", &Traffic::asked_bytes}, {"sectors", &Traffic::sectors},
  {"least_sectors", &Traffic::least_sectors}, {"aligned_sectors", &Traffic::aligned_sectors}, {"wavefronts", &Traffic::wavefronts},
  {"least_wavefronts", &Traffic::least_wavefronts}, {"conflicts", &Traffic::conflicts}, {"repeated", &Traffic::repeated},
  {"threads", &Traffic::threads}, {"merged", &Traffic::merged}, {"left_out", &Traffic::left_out},
};

struct Instruction {
  const void* site;  // the return address of its call of the profiler
  Space space;
  Kind kind;
  Update update = Update::kNative;  // of an atomic access to shared memory
  auto operator<=>(const Instruction&) const = default;
};

using Instructions = std::map<Instruction, Traffic>;

// Calls `each` with every lane of the mask.
template <class Each>
void for_lanes(std::uint32_t lanes, Each each) {
  for (; lanes; lanes &= lanes - 1) each(static_cast<unsigned>(std::countr_zero(lanes)));
}

// Returns at most `most` numbers below `count`: the first, the last and numbers between them at equal distances.
std::vector<std::uint64_t> spread(std::uint64_t count, std::uint64_t most);

}  // namespace emulator::profile
