// Graphs of nodes, and instantiated graphs.
#include "emulator/graph_nodes.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>

#include "emulator/memory.h"
#include "emulator/sanitize.h"
#include "emulator/scheduler.h"
#include "emulator/streams.h"
#include "graph_state.h"

namespace emulator {

std::recursive_mutex graphs_mutex;

namespace {

template <class Graph>
cudaError_t destroy(Graph* graph) {
  std::lock_guard lock(graphs_mutex);
  if (!live<Graph>().erase(graph)) return give(cudaErrorInvalidValue);
  delete graph;
  return synchronize();
}

// Returns the works of a graph in an order that its dependencies allow. Of the nodes that may come next, it takes the
// first in one call and the last in the next, so that a dependency that is missing shows. Returns fewer works if the
// dependencies have a cycle.
std::vector<Work> ordered(const std::vector<Instance>& nodes) {
  static std::atomic<unsigned> calls{0};
  const bool backwards = calls++ % 2;
  std::vector<Work> works;
  std::vector<bool> done(nodes.size());
  const auto ready = [&](std::size_t i) {
    return !done[i] && std::all_of(nodes[i].before.begin(), nodes[i].before.end(), [&](std::size_t other) { return done[other]; });
  };
  for (std::size_t tried = 0; tried < nodes.size();) {
    const std::size_t i = backwards ? nodes.size() - 1 - tried : tried;
    ++tried;
    if (!ready(i)) continue;
    done[i] = true;
    works.push_back(nodes[i].work);
    tried = 0;
  }
  return works;
}

std::vector<Instance> instances(const CUgraph_st& graph) {
  std::map<cudaGraphNode_t, std::size_t> places;
  for (const auto& node : graph.nodes) places.emplace(node.get(), places.size());
  std::vector<Instance> made;
  for (const auto& node : graph.nodes) {
    made.push_back({node.get(), node->type, node->work, {}});
    for (cudaGraphNode_t other : node->before) made.back().before.push_back(places.at(other));
    std::sort(made.back().before.begin(), made.back().before.end());
  }
  return made;
}

CUgraph_st* graph_of(cudaGraphNode_t node) {
  for (CUgraph_st* graph : live<CUgraph_st>())
    for (const auto& each : graph->nodes)
      if (each.get() == node) return graph;
  return nullptr;
}

cudaError_t do_all(const std::vector<Work>& works) {
  cudaError_t error = synchronize();
  for (const Work& each : works)
    if (!error) error = each();
  return error;
}

// Copies handles to the caller's array, whose size is `*count`. Sets the rest to null, or `*count` if there is no array.
cudaError_t give_nodes(const std::vector<cudaGraphNode_t>& nodes, cudaGraphNode_t* out, std::size_t* count) {
  if (out)
    for (std::size_t i = 0; i < *count; ++i) out[i] = i < nodes.size() ? nodes[i] : nullptr;
  *count = out ? std::min(*count, nodes.size()) : nodes.size();
  return synchronize();
}

}  // namespace

cudaError_t instantiate(cudaGraphExec_t* out, cudaGraph_t graph) {
  std::lock_guard lock(graphs_mutex);
  if (!live<CUgraph_st>().count(graph)) return give(cudaErrorInvalidValue);
  auto nodes = instances(*graph);
  if (ordered(nodes).size() < nodes.size()) return give(cudaErrorInvalidValue);
  live<CUgraphExec_st>().insert(*out = new CUgraphExec_st{std::move(nodes)});
  return synchronize();
}

cudaError_t launch_graph(cudaGraphExec_t graph, cudaStream_t stream, const char* file, int line) {
  if (in_kernel()) {
    lack_in_kernel("the launch of a graph from device code", file, line);
    return cudaErrorNotSupported;
  }
  std::vector<Work> works;
  {
    std::lock_guard lock(graphs_mutex);
    if (!live<CUgraphExec_st>().count(graph)) return give(cudaErrorInvalidValue);
    works = ordered(graph->nodes);
  }
  return in_stream(stream, [works, ticket = take_ticket(stream)] {
    ticket_of_graph = ticket;
    const cudaError_t error = do_all(works);
    ticket_of_graph = 0;
    return error;
  }, cudaGraphNodeTypeGraph);
}

// The work of a node is what a call does in a stream, so the call is captured.
cudaError_t capture_work(const std::function<cudaError_t(cudaStream_t)>& call, Work* work) {
  cudaStream_t stream;
  cudaGraph_t graph = nullptr;
  create_stream(&stream, cudaStreamNonBlocking);
  cudaError_t error = begin_capture(stream, cudaStreamCaptureModeRelaxed);
  if (!error) {
    error = call(stream);
    const cudaError_t ended = end_capture(stream, &graph);
    if (!error) error = ended;
  }
  destroy_stream(stream);
  if (!error) *work = [works = ordered(instances(*graph))] { return do_all(works); };
  if (graph) destroy(graph);
  return error;
}

cudaError_t create_graph(cudaGraph_t* out) {
  std::lock_guard lock(graphs_mutex);
  live<CUgraph_st>().insert(*out = new CUgraph_st);
  return synchronize();
}

cudaError_t add_node(cudaGraphNode_t* out, cudaGraph_t graph, const cudaGraphNode_t* before, std::size_t count, cudaGraphNodeType type,
                     const std::function<cudaError_t(cudaStream_t)>& call, const cudaKernelNodeParams* kernel) {
  std::lock_guard lock(graphs_mutex);
  if (!live<CUgraph_st>().count(graph)) return give(cudaErrorInvalidValue);
  auto node = std::make_unique<CUgraphNode_st>(type);
  if (kernel) node->kernel = *kernel;
  for (std::size_t i = 0; i < count; ++i) {
    if (graph_of(before[i]) != graph) return give(cudaErrorInvalidValue);
    node->before.push_back(before[i]);
  }
  if (const cudaError_t error = capture_work(call, &node->work)) return error;
  *out = node.get();
  graph->nodes.push_back(std::move(node));
  return synchronize();
}

cudaError_t add_child(cudaGraphNode_t* out, cudaGraph_t graph, const cudaGraphNode_t* before, std::size_t count, cudaGraph_t child) {
  std::lock_guard lock(graphs_mutex);
  if (!live<CUgraph_st>().count(child)) return give(cudaErrorInvalidValue);
  const Work work = [works = ordered(instances(*child))] { return do_all(works); };
  return add_node(out, graph, before, count, cudaGraphNodeTypeGraph, [&](cudaStream_t stream) { return record(stream, work); }, nullptr);
}

cudaError_t change_dependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to, std::size_t count, bool add) {
  std::lock_guard lock(graphs_mutex);
  for (std::size_t i = 0; i < count; ++i) {
    if (graph_of(from[i]) != graph || graph_of(to[i]) != graph) return give(cudaErrorInvalidValue);
    std::erase(to[i]->before, from[i]);
    if (add) to[i]->before.push_back(from[i]);
  }
  return synchronize();
}

cudaError_t change_kernel_node(cudaGraphNode_t node, cudaGraphExec_t in, const std::function<cudaError_t(cudaStream_t)>& call, const cudaKernelNodeParams& kernel) {
  std::lock_guard lock(graphs_mutex);
  if (!graph_of(node) || node->type != cudaGraphNodeTypeKernel) return give(cudaErrorInvalidValue);
  Work work;
  if (const cudaError_t error = capture_work(call, &work)) return error;
  if (!in) {
    node->kernel = kernel, node->work = work;
    return synchronize();
  }
  if (!live<CUgraphExec_st>().count(in)) return give(cudaErrorInvalidValue);
  const auto found = std::find_if(in->nodes.begin(), in->nodes.end(), [&](const Instance& each) { return each.node == node; });
  if (found == in->nodes.end()) return give(cudaErrorInvalidValue);
  found->work = work;
  return synchronize();
}

cudaError_t kernel_of(cudaGraphNode_t node, cudaKernelNodeParams* out) {
  std::lock_guard lock(graphs_mutex);
  if (!graph_of(node) || !node->kernel.func) return give(cudaErrorInvalidValue);
  *out = node->kernel;
  return synchronize();
}

cudaError_t type_of(cudaGraphNode_t node, cudaGraphNodeType* out) {
  std::lock_guard lock(graphs_mutex);
  if (!graph_of(node)) return give(cudaErrorInvalidValue);
  *out = node->type;
  return synchronize();
}

cudaError_t destroy_node(cudaGraphNode_t node) {
  std::lock_guard lock(graphs_mutex);
  CUgraph_st* graph = graph_of(node);
  if (!graph) return give(cudaErrorInvalidValue);
  for (const auto& each : graph->nodes) std::erase(each->before, node);
  std::erase_if(graph->nodes, [&](const auto& each) { return each.get() == node; });
  return synchronize();
}

cudaError_t clone_graph(cudaGraph_t* out, cudaGraph_t graph) {
  std::lock_guard lock(graphs_mutex);
  if (!live<CUgraph_st>().count(graph)) return give(cudaErrorInvalidValue);
  live<CUgraph_st>().insert(*out = new CUgraph_st);
  for (const auto& node : graph->nodes) (*out)->nodes.push_back(std::make_unique<CUgraphNode_st>(node->type, node->work, node->kernel));
  const auto made = instances(*graph);
  for (std::size_t i = 0; i < made.size(); ++i)
    for (std::size_t other : made[i].before) (*out)->nodes[i]->before.push_back((*out)->nodes[other].get());
  return synchronize();
}

cudaError_t update(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info) {
  std::lock_guard lock(graphs_mutex);
  if (!live<CUgraphExec_st>().count(exec) || !live<CUgraph_st>().count(graph)) return give(cudaErrorInvalidValue);
  auto nodes = instances(*graph);
  *info = {cudaGraphExecUpdateSuccess, nullptr, nullptr};
  bool same = nodes.size() == exec->nodes.size();
  for (std::size_t i = 0; same && i < nodes.size(); ++i) {
    same = nodes[i].before == exec->nodes[i].before;
    if (same && nodes[i].type != exec->nodes[i].type) *info = {cudaGraphExecUpdateErrorNodeTypeChanged, nodes[i].node, nullptr};
    if (!same) info->errorNode = nodes[i].node;
  }
  if (!same) info->result = cudaGraphExecUpdateErrorTopologyChanged;
  if (info->result != cudaGraphExecUpdateSuccess) return give(cudaErrorGraphExecUpdateFailure);
  for (std::size_t i = 0; i < nodes.size(); ++i) exec->nodes[i].work = nodes[i].work;
  return synchronize();
}

cudaError_t nodes_of(cudaGraph_t graph, bool roots, cudaGraphNode_t* out, std::size_t* count) {
  std::lock_guard lock(graphs_mutex);
  if (!live<CUgraph_st>().count(graph)) return give(cudaErrorInvalidValue);
  std::vector<cudaGraphNode_t> nodes;
  for (const auto& node : graph->nodes)
    if (!roots || node->before.empty()) nodes.push_back(node.get());
  return give_nodes(nodes, out, count);
}

cudaError_t dependencies_of(cudaGraphNode_t node, cudaGraphNode_t* out, std::size_t* count) {
  std::lock_guard lock(graphs_mutex);
  return graph_of(node) ? give_nodes(node->before, out, count) : give(cudaErrorInvalidValue);
}

cudaError_t destroy_graph(cudaGraph_t graph) { return destroy(graph); }
cudaError_t destroy_graph(cudaGraphExec_t graph) { return destroy(graph); }

cudaError_t set_elements(cudaStream_t stream, void* to, std::size_t pitch, unsigned value, unsigned bytes, std::size_t width, std::size_t height) {
  if (height <= 1) pitch = width * bytes;
  if (bytes == 1) return set_2d_in_stream(stream, to, pitch, static_cast<int>(value), width, height);
  if (!is_device(to) || (bytes != 2 && bytes != 4)) return give(cudaErrorInvalidValue);
  return in_stream(stream, [=] {
    for (std::size_t i = 0; i < width * height; ++i)
      std::memcpy(static_cast<char*>(to) + i / width * pitch + i % width * bytes, &value, bytes);
    if (sanitize::on) sanitize::written_by_host(to, height * pitch);
    return synchronize();
  }, cudaGraphNodeTypeMemset);
}

}  // namespace emulator
