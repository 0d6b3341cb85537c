// Switching between stacks. A hand-written switch costs a few nanoseconds; swapcontext makes a system call
// each way and serves where no hand-written one exists.
#pragma once
#include <cstddef>

namespace emulator {

class Context {
 public:
  Context() = default;
  // A context that calls entry(argument) on its own stack when first switched to; entry must never return.
  Context(std::size_t stack_bytes, void (*entry)(void*), void* argument);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Leaves `from` where it is and goes on where `to` left off.
  static void swap(Context& from, Context& to);

 private:
  void* state_ = nullptr;  // the saved stack pointer, or a ucontext_t
  void* stack_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace emulator
