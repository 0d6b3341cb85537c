// Brings the basic blocks that the threads of a warp execute together, for the command `profile`. The emulator runs the
// threads one after the other, a GPU runs them together. Between two points where all threads of a warp meet, the warp is
// taken to execute a basic block as often as that of its threads which executes it most often.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "emulator/scheduler.h"

namespace emulator::profile {

// How often warps executed a basic block, and how often their threads did: at most 32 times as often.
struct Executed {
  std::uint64_t warps = 0, threads = 0;
};

// The basic blocks that some warps of one block of threads execute. A basic block is given by its site: the return
// address of the call at its start.
class Steps {
 public:
  explicit Steps(std::size_t warps) : warps_(warps) {}

  void add(std::size_t warp, unsigned lane, const void* site);
  // All threads of a warp have met.
  void meet(std::size_t warp);
  // All threads of the block have met at a barrier or have ended, and the warps have waited for the last of them.
  void settle();

  // Returns the sums by basic block.
  std::map<const void*, Executed> sums() const;

  std::uint64_t waited = 0, waitable = 0;  // basic blocks that warps could have executed while they waited, and all

 private:
  struct Counts {
    std::array<std::uint32_t, kWarpSize> of{};  // by lane
    bool begun = false;
  };
  struct Warp {
    std::vector<Counts> counts;                                // by basic block
    std::vector<unsigned> begun;                               // the basic blocks with counts
    std::uint64_t executed = 0;                                // since the last barrier
  };

  unsigned index_of(const void* site);

  std::vector<Warp> warps_;
  std::vector<const void*> sites_;
  std::vector<Executed> executed_;  // by basic block
  std::map<const void*, unsigned> index_of_;
  std::array<unsigned, 1024> recent_{};  // a guess of the index by the site
};

}  // namespace emulator::profile
