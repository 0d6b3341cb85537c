// Assertions, traps and faults of the processor in a kernel. Each ends the launch by the error that it is on a GPU.
#include "traps.h"

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "core.h"
#include "emulator/sanitize.h"

namespace emulator {
namespace {

constexpr std::size_t kFaultStackBytes = 64 * 1024;
constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGILL};
struct sigaction others[NSIG];  // what other code does at these signals

void on_fault(int signal, siginfo_t* info, void*) {
  if (!in_kernel() || sanitize::on) {  // the same instruction faults again, and then the other handler is called
    sigaction(signal, &others[signal], nullptr);
    return;
  }
  if (signal == SIGILL) trap("an instruction that is not valid", cudaErrorIllegalInstruction, nullptr);
  trap(core->fault_at(info->si_addr).c_str(), cudaErrorIllegalAddress, nullptr);
}

void install() {
  for (int signal : kSignals) {
    struct sigaction present {};
    sigaction(signal, nullptr, &present);
    if (present.sa_flags & SA_SIGINFO && present.sa_sigaction == &on_fault) continue;
    others[signal] = present;
    struct sigaction action {};
    action.sa_sigaction = &on_fault;
    // The handler does not return from a kernel's fault, so the signal must not be blocked until it does.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace

FaultStack::FaultStack() {
  install();
  stack_t present{};
  sigaltstack(nullptr, &present);
  if (!(present.ss_flags & SS_DISABLE)) return;  // another one serves as well
  memory_ = std::make_unique<char[]>(kFaultStackBytes);
  const stack_t own{memory_.get(), 0, kFaultStackBytes};
  sigaltstack(&own, nullptr);
}

FaultStack::~FaultStack() {
  if (!memory_) return;
  const stack_t none{nullptr, SS_DISABLE, 0};
  sigaltstack(&none, nullptr);
}

void trap_at(const char* file, int line) {
  trap((std::string(file) + ":" + std::to_string(line) + ": __trap()").c_str(), cudaErrorLaunchFailure, __builtin_return_address(0));
}

}  // namespace emulator

// The macro `assert` calls this function, because the compiler's flags give it the name of the C library's function.
extern "C" [[noreturn]] void emulator_assert_fail(const char* expression, const char* file, unsigned line, const char* function) noexcept {
  const std::string text = "Assertion `" + std::string(expression) + "` failed";
  if (!emulator::in_kernel()) {
    std::fprintf(stderr, "%s:%u: %s: %s.\n", file, line, function, text.c_str());
    std::abort();
  }
  std::fprintf(stderr, "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] %s.\n", file, line, function, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x,
               threadIdx.y, threadIdx.z, text.c_str());
  emulator::trap((std::string(file) + ":" + std::to_string(line) + ": " + text).c_str(), cudaErrorAssert, __builtin_return_address(0));
}
