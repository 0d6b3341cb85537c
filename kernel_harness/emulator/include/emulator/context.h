// Contexts: stacks, and the one way from one to another. A hand-written switch costs a few nanoseconds;
// swapcontext makes a system call each way and serves where no hand-written one exists.
#pragma once
#include <cstddef>
#include <cstdint>

namespace emulator {

// Where a context left off, on its own stack: its answer, and what the machine needs to go on.
struct Left {
  std::uint64_t answer;
};
using State = Left*;

// Says who goes on: `here` is where whoever asks left off, and the other two are what it says of itself.
using Choose = State (*)(std::uint64_t, std::uint64_t, State here);

}  // namespace emulator

// Leaves the caller where it is and goes on where `choose` says; when somebody chooses the caller again, it returns
// the caller's answer. It returns by a jump: whoever goes on was mostly left at another place, and a processor that
// pairs returns with the last calls would foretell the wrong one.
extern "C" std::uint64_t emulator_wait(std::uint64_t, std::uint64_t, emulator::Choose choose);

namespace emulator {

// What was being done there: the return address of the call that waits.
const void* caller_of(State state);

class Stack {
 public:
  explicit Stack(std::size_t bytes);
  ~Stack();
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  // A context that calls entry(argument) on this stack when first chosen; entry must never return.
  State begin(void (*entry)(void*), void* argument);

 private:
  char* low_;
  std::size_t bytes_;
};

}  // namespace emulator
