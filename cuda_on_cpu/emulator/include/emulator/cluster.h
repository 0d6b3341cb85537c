// Thread block clusters: blocks that run together, reach each other's shared memory, and meet at a barrier.
#pragma once
#include <cstdint>

#include "emulator/dim3.h"
#include "emulator/mbarrier.h"

namespace emulator {

void cluster_arrive();
void cluster_wait(SourcePlace place);
unsigned cluster_rank();  // of the running block
dim3 cluster_size();      // in blocks
inline unsigned cluster_blocks() { return cluster_size().x * cluster_size().y * cluster_size().z; }
// The address in the shared memory of a block of the cluster that `address` has in that of the running block.
void* in_block_of_cluster(const void* address, unsigned rank);
// The rank of the block that has this address in its shared memory.
unsigned block_of_address(const void* address);

}  // namespace emulator
