// Thread block clusters: blocks that run together, reach each other's shared memory, and meet at a barrier.
#pragma once
#include <cstdint>

#include "emulator/dim3.h"
#include "emulator/mbarrier.h"
#include "emulator/scheduler.h"

namespace emulator {

void cluster_arrive();
void cluster_wait(SourcePlace place);
unsigned cluster_rank();  // of the running block
dim3 cluster_size();      // in blocks
inline unsigned cluster_blocks() { return cluster_size().x * cluster_size().y * cluster_size().z; }
inline dim3 cluster_grid() { return {gridDim.x / cluster_size().x, gridDim.y / cluster_size().y, gridDim.z / cluster_size().z}; }    // in clusters
inline dim3 cluster_index() { return {blockIdx.x / cluster_size().x, blockIdx.y / cluster_size().y, blockIdx.z / cluster_size().z}; }  // of the block's one
// The address in the shared memory of a block of the cluster that `address` has in that of the running block.
void* in_block_of_cluster(const void* address, unsigned rank);
// The rank of the block that has this address in its shared memory.
unsigned block_of_address(const void* address);

}  // namespace emulator
