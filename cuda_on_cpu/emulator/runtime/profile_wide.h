// Models how nvcc merges neighbouring accesses of a thread to shared memory into wide ones, for the command `profile`.
// In straight-line code, which includes loops that nvcc unrolls, nvcc makes one instruction of 8 or 16 bytes of loads
// whose addresses differ by constants, if it knows the alignment and nothing writes to shared memory in between. The
// same holds for stores with no load in between. The SASS of the kernels in docs/profile.md shows both.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "profile_accesses.h"

namespace emulator::profile {

// The requests of one warp to shared memory that may become parts of wide ones.
class WideAccesses {
 public:
  // Adds a request of the instruction with the number `index`. `kind` is kLoad or kStore.
  void add(const Request& request, unsigned index, Kind kind);
  // Ends all runs: nothing after this point is merged with what came before.
  void end();

  // Requests of the same bytes and lanes at neighbouring addresses: that of the i-th instruction in `indices` is
  // i * `first.bytes` behind `first`.
  struct Run {
    Request first;
    std::vector<unsigned> indices;
  };
  // Moves the runs that have ended to `to`.
  void take(std::vector<Run>& to);

 private:
  struct Member {
    std::uintptr_t address;
    unsigned index;
    unsigned time;  // how many of the family had the same address before
  };
  struct Family {  // requests whose addresses differ by one number in all lanes
    Request first;
    Kind kind;
    std::vector<Member> members;
  };

  void end(Family& family);
  void end(Kind kind);

  std::vector<Family> families_;
  std::vector<Run> runs_;
};

// Which instructions of a block access neighbours. nvcc merges two instructions only if it knows that they always do: the
// loads of `x[i]` and `x[i + s]` are neighbours while `s` is 1, and are not merged.
class Neighbours {
 public:
  // Adds runs of the block, and splits them between instructions that were not always neighbours so far.
  std::vector<WideAccesses::Run> split(const std::vector<WideAccesses::Run>& runs);

 private:
  std::map<unsigned, std::uint64_t> times_;                           // requests, by instruction
  std::map<std::pair<unsigned, unsigned>, std::uint64_t> together_;  // of two different instructions, as neighbours
};

// Calls `each` with the number of an instruction and a request, for all requests that nvcc makes of the runs of a block.
// A wide request counts for the first of its instructions. `merged` is called with each of the others, which makes no
// request of its own, and how many threads take part. nvcc knows the alignment of an access from the arithmetic of
// its address. Here it is taken as known if all lanes of all runs that begin at the same instruction have it.
void widen(const std::vector<WideAccesses::Run>& runs, const std::function<void(unsigned, const Request&)>& each, const std::function<void(unsigned, std::uint64_t)>& merged);

}  // namespace emulator::profile
