// Captures by torch.cuda.CUDAGraph, in which torch's operators are recorded beside the kernel launches of extensions.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace emulator {

bool torch_captures();  // whether such a capture is under way
// Keeps the memory of a tensor that was allocated during the capture: the graph will use it at each replay.
void keep_in_capture(const at::Tensor& allocated);

// An operator that is recorded. It runs during the capture, too, because torch needs the sizes of its results and
// later operators may look at its values. The end of the capture takes its effects back.
class CapturedOperator {
 public:
  // Raises c10::Error if CUDA forbids the operator during a capture. Otherwise keeps a copy of what it will overwrite.
  CapturedOperator(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments);
  // Runs the operator on the host tensors at the end of `stack`, and puts its results there.
  void run(torch::jit::Stack& stack) const;
  // Records the operator, which has run and returned `results`.
  void record(c10::ArrayRef<c10::IValue> results) const;

 private:
  const c10::OperatorHandle op_;
  std::vector<c10::IValue> arguments_;
  std::vector<c10::Storage> storages_;  // of the arguments
  std::vector<bool> written_;           // for each argument, whether the operator writes to it
};

}  // namespace emulator
