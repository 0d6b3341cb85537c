// The special registers of PTX: the name of each, with `_` in place of the dot, is a function that reads it.
// https://docs.nvidia.com/cuda/parallel-thread-execution/#special-registers
#pragma once
#include <cstdint>

#include "emulator/cluster.h"
#include "emulator/kernel.h"
#include "emulator/properties.h"
#include "emulator/ptx_scalar.h"

namespace emulator::ptx {

inline unsigned tid_x() { return threadIdx.x; }
inline unsigned tid_y() { return threadIdx.y; }
inline unsigned tid_z() { return threadIdx.z; }
inline unsigned ntid_x() { return blockDim.x; }
inline unsigned ntid_y() { return blockDim.y; }
inline unsigned ntid_z() { return blockDim.z; }
inline unsigned ctaid_x() { return blockIdx.x; }
inline unsigned ctaid_y() { return blockIdx.y; }
inline unsigned ctaid_z() { return blockIdx.z; }
inline unsigned nctaid_x() { return gridDim.x; }
inline unsigned nctaid_y() { return gridDim.y; }
inline unsigned nctaid_z() { return gridDim.z; }
inline unsigned cluster_ctarank() { return cluster_rank(); }
inline unsigned cluster_nctarank() { return cluster_blocks(); }
inline unsigned cluster_nctaid_x() { return cluster_size().x; }
inline unsigned cluster_nctaid_y() { return cluster_size().y; }
inline unsigned cluster_nctaid_z() { return cluster_size().z; }
inline unsigned cluster_ctaid_x() { return blockIdx.x % cluster_size().x; }
inline unsigned cluster_ctaid_y() { return blockIdx.y % cluster_size().y; }
inline unsigned cluster_ctaid_z() { return blockIdx.z % cluster_size().z; }
inline unsigned clusterid_x() { return cluster_index().x; }
inline unsigned clusterid_y() { return cluster_index().y; }
inline unsigned clusterid_z() { return cluster_index().z; }
inline unsigned nclusterid_x() { return cluster_grid().x; }
inline unsigned nclusterid_y() { return cluster_grid().y; }
inline unsigned nclusterid_z() { return cluster_grid().z; }
inline unsigned laneid() { return lane(); }
inline unsigned warpid() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) / kWarpSize; }
inline unsigned nwarpid() { return limits::kThreadsPerMultiprocessor / kWarpSize; }
inline unsigned nsmid() { return limits::kMultiprocessors; }
// On a GPU, the first blocks of a grid go to the multiprocessors in turn.
inline unsigned smid() { return (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)) % nsmid(); }
inline std::uint64_t gridid() { return launches; }
inline unsigned dynamic_smem_size() { return dynamic_shared_bytes(); }
inline unsigned total_smem_size() { return total_shared_bytes(); }
inline unsigned clock() { return static_cast<unsigned>(clock64()); }
inline std::uint64_t clock64() { return static_cast<std::uint64_t>(::clock64()); }
inline unsigned clock_hi() { return static_cast<unsigned>(clock64() >> 32); }
inline std::uint64_t globaltimer() { return clock64(); }
inline unsigned globaltimer_lo() { return clock(); }
inline unsigned globaltimer_hi() { return clock_hi(); }
inline unsigned lanemask_eq() { return 1u << lane(); }
inline unsigned lanemask_lt() { return lanemask_eq() - 1; }
inline unsigned lanemask_le() { return lanemask_lt() | lanemask_eq(); }
inline unsigned lanemask_ge() { return ~lanemask_lt(); }
inline unsigned lanemask_gt() { return ~lanemask_le(); }

}  // namespace emulator::ptx
