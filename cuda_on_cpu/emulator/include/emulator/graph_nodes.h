// Graphs that a program builds node by node, and updates of instantiated graphs. A node's work is what the call of the
// same name does in a stream.
#pragma once
#include <functional>

#include "emulator/launch_calls.h"

// https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__GRAPH.html
struct cudaMemsetParams {
  void* dst;
  std::size_t pitch;
  unsigned value, elementSize;
  std::size_t width, height;
};
struct cudaHostNodeParams {
  cudaHostFn_t fn;
  void* userData;
};
struct cudaKernelNodeParams {
  void* func;
  dim3 gridDim, blockDim;
  unsigned sharedMemBytes;
  void **kernelParams, **extra;
};
enum cudaGraphExecUpdateResult {
  cudaGraphExecUpdateSuccess = 0,
  cudaGraphExecUpdateError = 1,
  cudaGraphExecUpdateErrorTopologyChanged = 2,
  cudaGraphExecUpdateErrorNodeTypeChanged = 3,
  cudaGraphExecUpdateErrorFunctionChanged = 4,
  cudaGraphExecUpdateErrorParametersChanged = 5,
  cudaGraphExecUpdateErrorNotSupported = 6,
  cudaGraphExecUpdateErrorUnsupportedFunctionChange = 7,
  cudaGraphExecUpdateErrorAttributesChanged = 8,
};
struct cudaGraphExecUpdateResultInfo {
  cudaGraphExecUpdateResult result;
  cudaGraphNode_t errorNode, errorFromNode;
};
struct cudaGraphEdgeData {
  unsigned char from_port, to_port, type, reserved[5];
};

namespace emulator {
using Call = std::function<cudaError_t(cudaStream_t)>;
cudaError_t create_graph(cudaGraph_t* out);
// Adds a node that does what `call` does in a stream. `kernel` is null for a node without a kernel.
cudaError_t add_node(cudaGraphNode_t* out, cudaGraph_t graph, const cudaGraphNode_t* before, std::size_t count, cudaGraphNodeType type, const Call& call, const cudaKernelNodeParams* kernel = nullptr);
cudaError_t add_child(cudaGraphNode_t* out, cudaGraph_t graph, const cudaGraphNode_t* before, std::size_t count, cudaGraph_t child);
cudaError_t change_dependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to, std::size_t count, bool add);
// Gives a node another launch: in its graph, or, if `in` is not null, in that instantiated graph.
cudaError_t change_kernel_node(cudaGraphNode_t node, cudaGraphExec_t in, const Call& call, const cudaKernelNodeParams& kernel);
cudaError_t kernel_of(cudaGraphNode_t node, cudaKernelNodeParams* out);
cudaError_t type_of(cudaGraphNode_t node, cudaGraphNodeType* out);
cudaError_t destroy_node(cudaGraphNode_t node);
cudaError_t clone_graph(cudaGraph_t* out, cudaGraph_t graph);
cudaError_t update(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info);
cudaError_t nodes_of(cudaGraph_t graph, bool roots, cudaGraphNode_t* out, std::size_t* count);
cudaError_t dependencies_of(cudaGraphNode_t node, cudaGraphNode_t* out, std::size_t* count);

// Sets elements of `bytes` bytes each to the lowest bytes of `value`, on a little-endian machine.
cudaError_t set_elements(cudaStream_t stream, void* to, std::size_t pitch, unsigned value, unsigned bytes, std::size_t width, std::size_t height);

inline Call launch_of(const cudaKernelNodeParams& p, const char* file, int line) {
  return [=](cudaStream_t stream) { return cudaLaunchKernel(static_cast<const void*>(p.func), p.gridDim, p.blockDim, p.kernelParams, p.sharedMemBytes, stream, file, line); };
}
}  // namespace emulator

#pragma GCC visibility push(hidden)
inline cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) { return emulator::create_graph(graph); }
inline cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* before, std::size_t count, const cudaKernelNodeParams* params, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return emulator::add_node(node, graph, before, count, cudaGraphNodeTypeKernel, emulator::launch_of(*params, file, line), params);
}
inline cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* before, std::size_t count, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return emulator::add_node(node, graph, before, count, cudaGraphNodeTypeMemcpy, [=](cudaStream_t stream) { return cudaMemcpyAsync(to, from, bytes, kind, stream); });
}
inline cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* before, std::size_t count, const cudaMemsetParams* params) {
  return emulator::add_node(node, graph, before, count, cudaGraphNodeTypeMemset, [p = *params](cudaStream_t stream) { return emulator::set_elements(stream, p.dst, p.pitch, p.value, p.elementSize, p.width, p.height); });
}
inline cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* before, std::size_t count, const cudaHostNodeParams* params) {
  return emulator::add_node(node, graph, before, count, cudaGraphNodeTypeHost, [p = *params](cudaStream_t stream) { return cudaLaunchHostFunc(stream, p.fn, p.userData); });
}
inline cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* before, std::size_t count) {
  return emulator::add_node(node, graph, before, count, cudaGraphNodeTypeEmpty, [](cudaStream_t) { return cudaSuccess; });
}
inline cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* before, std::size_t count, cudaGraph_t child) {
  return emulator::add_child(node, graph, before, count, child);
}
inline cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to, std::size_t count) { return emulator::change_dependencies(graph, from, to, count, true); }
inline cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to, const cudaGraphEdgeData*, std::size_t count) { return emulator::change_dependencies(graph, from, to, count, true); }
inline cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to, std::size_t count) { return emulator::change_dependencies(graph, from, to, count, false); }
inline cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to, const cudaGraphEdgeData*, std::size_t count) { return emulator::change_dependencies(graph, from, to, count, false); }
inline cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams* params) { return emulator::kernel_of(node, params); }
inline cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const cudaKernelNodeParams* params, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return emulator::change_kernel_node(node, nullptr, emulator::launch_of(*params, file, line), *params);
}
inline cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, const cudaKernelNodeParams* params, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return emulator::change_kernel_node(node, exec, emulator::launch_of(*params, file, line), *params);
}
inline cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info) { return emulator::update(exec, graph, info); }
inline cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) { return emulator::nodes_of(graph, false, nodes, count); }
inline cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) { return emulator::nodes_of(graph, true, nodes, count); }
inline cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* before, std::size_t* count) { return emulator::dependencies_of(node, before, count); }
inline cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* before, cudaGraphEdgeData*, std::size_t* count) { return emulator::dependencies_of(node, before, count); }
inline cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) { return emulator::type_of(node, type); }
inline cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) { return emulator::destroy_node(node); }
inline cudaError_t cudaGraphClone(cudaGraph_t* clone, cudaGraph_t graph) { return emulator::clone_graph(clone, graph); }
#pragma GCC visibility pop
