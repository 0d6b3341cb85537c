// Stacks with a guard page below, and the switch between them.
#include "emulator/context.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <new>

#if !defined(EMULATOR_PORTABLE_SWITCH) && (defined(__x86_64__) || defined(__aarch64__))
#define EMULATOR_FAST_SWITCH 1
#else
#include <ucontext.h>
#endif

namespace emulator {
namespace {

std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

// Stacks that all began at the same offset of a page would share a few sets of the caches, and every switch
// would miss; a different start for each took a 256-thread tree reduction from 25 to 18 ns a switch.
std::size_t colour() {
  static std::atomic<unsigned> serial{0};
  return serial++ % 128 * 192;
}

}  // namespace

Stack::Stack(std::size_t bytes) : bytes_(bytes) {
  void* low = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (low == MAP_FAILED) throw std::bad_alloc();
  mprotect(low, page(), PROT_NONE);  // an overflow faults instead of writing into the neighbour
  low_ = static_cast<char*>(low);
}

Stack::~Stack() { munmap(low_, bytes_); }

#ifdef EMULATOR_FAST_SWITCH

// The registers that a callee must keep go onto the stack; those of the state that is chosen come back.
extern "C" void emulator_start();
#if defined(__x86_64__)
asm(R"(
.pushsection .text
.globl emulator_wait
.type emulator_wait, @function
emulator_wait:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15; pushq %rax
  movq %rdx, %rax
  movq %rsp, %rdx
  callq *%rax
  movq %rax, %rsp
  popq %rax; popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  popq %rcx
  jmpq *%rcx
.globl emulator_start
.hidden emulator_start
emulator_start:
  movq %r12, %rdi
  callq *%r13
  ud2
.popsection
)");
constexpr int kWords = 10, kArgument = 4, kEntry = 3, kReturn = 7;  // even: a call expects 16 bytes' alignment after 8 pops
#else
asm(R"(
.pushsection .text
.globl emulator_wait
.type emulator_wait, %function
emulator_wait:
  sub sp, sp, #176
  stp x19, x20, [sp, #16]; stp x21, x22, [sp, #32]; stp x23, x24, [sp, #48]; stp x25, x26, [sp, #64]
  stp x27, x28, [sp, #80]; stp x29, x30, [sp, #96]
  stp d8, d9, [sp, #112]; stp d10, d11, [sp, #128]; stp d12, d13, [sp, #144]; stp d14, d15, [sp, #160]
  mov x9, x2
  mov x2, sp
  blr x9
  mov sp, x0
  ldr x0, [sp]
  ldp x19, x20, [sp, #16]; ldp x21, x22, [sp, #32]; ldp x23, x24, [sp, #48]; ldp x25, x26, [sp, #64]
  ldp x27, x28, [sp, #80]; ldp x29, x30, [sp, #96]
  ldp d8, d9, [sp, #112]; ldp d10, d11, [sp, #128]; ldp d12, d13, [sp, #144]; ldp d14, d15, [sp, #160]
  add sp, sp, #176
  br x30
.globl emulator_start
.hidden emulator_start
emulator_start:
  mov x0, x19
  blr x20
  brk #0
.popsection
)");
constexpr int kWords = 22, kArgument = 2, kEntry = 3, kReturn = 13;
#endif

State Stack::begin(void (*entry)(void*), void* argument) {
  auto** frame = reinterpret_cast<void**>(low_ + bytes_ - colour()) - kWords;
  frame[kArgument] = argument;
  frame[kEntry] = reinterpret_cast<void*>(entry);
  frame[kReturn] = reinterpret_cast<void*>(&emulator_start);
  return reinterpret_cast<State>(frame);
}

const void* caller_of(State state) { return reinterpret_cast<void**>(state)[kReturn]; }

#else

namespace {

struct Here : Left {
  ucontext_t context;
  const void* caller;
};

// makecontext passes ints only: each pointer travels as two.
void enter(unsigned entry_high, unsigned entry_low, unsigned high, unsigned low) {
  auto join = [](unsigned a, unsigned b) { return (static_cast<std::uintptr_t>(a) << 32) | b; };
  reinterpret_cast<void (*)(void*)>(join(entry_high, entry_low))(reinterpret_cast<void*>(join(high, low)));
}

}  // namespace

State Stack::begin(void (*entry)(void*), void* argument) {
  auto* left = new (low_ + bytes_ - colour() - (sizeof(Here) + 15) / 16 * 16) Here;
  getcontext(&left->context);
  left->context.uc_stack.ss_sp = low_;
  left->context.uc_stack.ss_size = static_cast<std::size_t>(reinterpret_cast<char*>(left) - low_);
  left->context.uc_link = nullptr;
  auto e = reinterpret_cast<std::uintptr_t>(entry), a = reinterpret_cast<std::uintptr_t>(argument);
  makecontext(&left->context, reinterpret_cast<void (*)()>(&enter), 4, static_cast<unsigned>(e >> 32), static_cast<unsigned>(e),
              static_cast<unsigned>(a >> 32), static_cast<unsigned>(a));
  return left;
}

const void* caller_of(State state) { return static_cast<Here*>(state)->caller; }

extern "C" std::uint64_t emulator_wait(std::uint64_t a, std::uint64_t b, Choose choose) {
  Here here;
  here.caller = __builtin_return_address(0);
  const State next = choose(a, b, &here);
  if (next != &here) swapcontext(&here.context, &static_cast<Here*>(next)->context);
  return here.answer;
}

#endif

}  // namespace emulator
