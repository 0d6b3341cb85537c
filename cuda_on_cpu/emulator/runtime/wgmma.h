// The products that a warpgroup has begun by wgmma.
#pragma once
#include <deque>
#include <memory>
#include <vector>

#include "emulator/wgmma.h"

namespace emulator {

constexpr unsigned kWarpgroup = 128, kWarpgroups = 1024 / kWarpgroup;  // threads, and the most of a block

// The sums of a warpgroup, 64 rows of N columns, while its products run.
struct Sums {
  std::vector<float> floats;
  std::vector<std::int32_t> integers;
};

struct Product {
  WgmmaShape shape;
  std::shared_ptr<Sums> sums;
  std::uint64_t a, b;                        // descriptors
  std::vector<std::uint32_t> a_registers;    // four of each thread, if A is in registers
  bool adds;                                 // to the sums before
  SourcePlace place;
  unsigned issued = 0;                       // by how many threads
};

// The registers of a thread that get sums, and the last product whose sums these are.
struct Target {
  std::vector<std::uint32_t*> registers;
  WgmmaShape shape;
  std::shared_ptr<Sums> sums;
  std::uint64_t last;
};

struct Warpgroup {
  struct Lane {
    std::uint64_t issued = 0;            // how many products
    std::deque<std::uint64_t> committed;  // where each group of products ends, the oldest group first
    std::vector<Target> targets;
  };
  std::vector<Lane> lanes = std::vector<Lane>(kWarpgroup);
  std::deque<Product> products;  // that have not run
  std::uint64_t run = 0;         // how many have
};

}  // namespace emulator
