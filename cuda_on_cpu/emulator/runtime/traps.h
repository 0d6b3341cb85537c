// Faults of the processor in a kernel: they become errors of the launch, as on a GPU, and the process goes on.
#pragma once
#include <memory>

namespace emulator {

// Lets faults of this OS thread's kernels be handled, on a stack of their own: a kernel's may be too short.
class FaultStack {
 public:
  FaultStack();
  ~FaultStack();
  FaultStack(const FaultStack&) = delete;
  FaultStack& operator=(const FaultStack&) = delete;

 private:
  std::unique_ptr<char[]> memory_;
};

}  // namespace emulator
