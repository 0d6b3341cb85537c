// The graphs and instantiated graphs that exist.
#pragma once
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "emulator/graph_nodes.h"

struct CUgraphNode_st {
  cudaGraphNodeType type;
  emulator::Work work;
  cudaKernelNodeParams kernel{};
  std::vector<cudaGraphNode_t> before{};  // the nodes that it depends on
};
struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
};
// A node of an instantiated graph, with the node that it was made from. `before` are indices of nodes.
struct Instance {
  cudaGraphNode_t node;
  cudaGraphNodeType type;
  emulator::Work work;
  std::vector<std::size_t> before;
};
struct CUgraphExec_st {
  std::vector<Instance> nodes;
};

namespace emulator {

extern std::recursive_mutex graphs_mutex;

template <class Graph>
std::set<Graph*>& live() {
  static auto* all = new std::set<Graph*>;
  return *all;
}

}  // namespace emulator
