// Brings the accesses of the threads of a warp together, for the command `profile`. The emulator runs the threads of a
// warp one after the other, a GPU runs them together. So the k-th access that each thread makes at one instruction
// belongs to one request of the warp. At a barrier and at a warp operation the threads continue with equal k, so threads
// that skip an access are then together again.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "emulator/memory.h"
#include "emulator/profile.h"
#include "emulator/scheduler.h"
#include "profile_cache.h"
#include "profile_steps.h"

namespace emulator::profile {

enum class Space : std::uint8_t { kGlobal, kShared };
enum class Kind : std::uint8_t { kLoad, kStore, kAtomic };

// One access of a warp: the addresses of the threads that take part, each of which accesses `bytes` bytes.
struct Request {
  std::uint32_t lanes = 0;
  std::uint32_t bytes = 0;
  std::uintptr_t address[kWarpSize];
};

// What the requests of one instruction do. The sums are over its requests.
struct Traffic {
  std::uint64_t requests = 0, asked_bytes = 0;
  std::uint64_t sectors = 0, least_sectors = 0;        // global memory: sectors of 32 bytes
  std::uint64_t aligned_sectors = 0;                   // if each contiguous run of addresses began at a sector
  std::uint64_t wavefronts = 0, least_wavefronts = 0;  // shared memory: accesses to its 32 banks
  std::uint64_t repeated = 0;                          // atomics: further updates of the address that most threads update
  std::uint64_t l1_sectors = 0;                        // global loads: sectors that the model of the L1 cache has
  std::uint64_t threads = 0, left_out = 0;             // accesses of threads in the requests, and those not recorded
  std::uint64_t ways = 0;                              // shared memory: the most wavefronts that one part of a request needs

  void add(const Request& request, Space space, Kind kind);
  void add(const Traffic& other);
};

struct Instruction {
  const void* site;  // the return address of its call of the profiler
  Space space;
  Kind kind;
  auto operator<=>(const Instruction&) const = default;
};

using Instructions = std::map<Instruction, Traffic>;

using Sectors = std::unordered_set<std::uintptr_t>;

// Returns at most `most` numbers below `count`: the first, the last and numbers between them at equal distances.
std::vector<std::uint64_t> spread(std::uint64_t count, std::uint64_t most);

// The accesses of some warps of one block.
class BlockRecord {
 public:
  // `warps` are the numbers of the warps to record. The block has `l1_bytes` of the L1 cache.
  BlockRecord(std::uint64_t number, std::uint64_t warps_of_block, const std::vector<std::uint64_t>& warps, std::size_t l1_bytes);

  // Records an access of a thread, whose number in the block is `thread`.
  void record(unsigned thread, std::uintptr_t address, std::size_t bytes, Space space, Access access, const void* site);
  // Records that a thread begins a basic block.
  void step(unsigned thread, const void* site);
  // Lets the threads of a warp continue with equal k, because they met in a warp operation.
  void meet(unsigned first, std::uint32_t lanes);
  // Adds the requests so far to the sums. The threads of the block have met at a barrier, or have ended.
  void settle();

  const std::uint64_t number;
  Instructions sums;
  // Remembers the device memory that an access touches.
  void touch(const Allocation& held);

  Steps steps;
  std::map<const void*, std::size_t> allocations;  // the device memory touched: start and size
  Sectors sectors;             // the different sectors of global memory in the requests
  std::uint64_t left_out = 0;  // accesses that were not recorded, because too many came before

 private:
  struct Stream {  // the requests of a warp at one instruction
    std::vector<Request> requests;
    std::uint64_t left_out = 0;                   // accesses of threads that were not recorded
    std::array<std::uint32_t, kWarpSize> next{};  // for each lane, the k of its next access
  };
  struct Last {  // the last access of a thread
    std::uintptr_t address = 0;
    Access access = Access::kLoad;
    unsigned stream = 0;
  };
  struct Warp {
    std::vector<Stream> streams;
    std::array<Last, kWarpSize> last{};
  };

  unsigned stream_of(const Instruction& instruction);
  void add_request(const Instruction& instruction, const Request& request);
  void put(Warp& warp, unsigned lane, unsigned stream, std::uintptr_t address, std::uint32_t bytes);

  std::vector<int> slot_of_;  // for each warp of the block, its place in warps_, or -1
  std::vector<Warp> warps_;
  std::map<Instruction, unsigned> stream_of_;
  std::vector<Instruction> instructions_;  // of each stream
  std::array<unsigned, 256> recent_{};     // a guess of the stream by the site
  Cache l1_;
  const void* last_start_ = nullptr;
};

}  // namespace emulator::profile
