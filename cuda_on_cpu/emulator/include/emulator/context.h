// Contexts: code that runs on a stack of its own, and the switch from one context to another. A hand-written switch
// costs a few nanoseconds. Machines without a hand-written switch use swapcontext, which makes a system call per
// switch.
#pragma once
#include <cstddef>
#include <cstdint>

namespace emulator {

// The saved state of a waiting context. It lies on the context's stack: the answer that its wait returns, and the saved
// registers.
struct SavedState {
  std::uint64_t answer;
};
using State = SavedState*;

// A function that returns the state of the context that runs next. `here` is the saved state of the context that called
// emulator_wait. The first two arguments are those of emulator_wait.
using Choose = State (*)(std::uint64_t, std::uint64_t, State here);

}  // namespace emulator

// Saves the caller's state and continues the context that `choose` returns. When the caller is chosen again, the call
// returns the `answer` in the caller's saved state. The switch continues a context by a jump instead of a return: the
// context usually waits at another call, so a processor that pairs returns with calls would predict the wrong address.
extern "C" std::uint64_t emulator_wait(std::uint64_t, std::uint64_t, emulator::Choose choose);

namespace emulator {

// Returns the return address of the call of emulator_wait that saved `state`.
const void* caller_of(State state);

// Returns a hash of all return addresses on the stack of the context that is about to wait. Only `choose` may call it.
std::uint64_t call_chain_hash();

class Stack {
 public:
  explicit Stack(std::size_t bytes);
  ~Stack();
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  // Creates a context that calls entry(argument) on this stack when it is first chosen. `entry` must never return.
  State begin(void (*entry)(void*), void* argument);

  const char* low() const { return low_; }
  // The end of what the context on this stack uses. The saved state of a waiting context is where its use begins.
  const char* top() const { return top_; }

 private:
  char *low_, *top_;
  std::size_t bytes_;
};

}  // namespace emulator
