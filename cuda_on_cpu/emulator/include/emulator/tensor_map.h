// Tensor maps: the description of a tensor in global memory and of a box of it, by which TMA copies boxes.
// https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TENSOR__MEMORY.html
#pragma once
#include <cstdint>

#include "emulator/mbarrier.h"

struct alignas(64) CUtensorMap_st {
  std::uint64_t opaque[16];
};
typedef CUtensorMap_st CUtensorMap;

namespace emulator {

// A box of a tensor: the map of the tensor, and the coordinates of the first element, innermost first.
struct Tile {
  const CUtensorMap* map;
  unsigned rank;
  std::int32_t at[5];
};
// Copies a box to shared memory, as `bulk_load` does, and from shared memory, as `bulk_store` does.
void tensor_load(void* to, const Tile& tile, void* barrier, SourcePlace place, std::uint32_t mask = 0);
void tensor_store(const Tile& tile, const void* from, SourcePlace place, const Reduction* reduction = nullptr);

}  // namespace emulator
