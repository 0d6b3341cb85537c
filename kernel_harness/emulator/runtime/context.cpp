// Stacks with a guard page below, and the switch between them.
#include "emulator/context.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <new>

#if !defined(EMULATOR_PORTABLE_SWITCH) && (defined(__x86_64__) || defined(__aarch64__))
#define EMULATOR_FAST_SWITCH 1
#else
#include <ucontext.h>
#endif

namespace emulator {
namespace {

std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

char* map_stack(std::size_t bytes) {
  void* low = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (low == MAP_FAILED) throw std::bad_alloc();
  mprotect(low, page(), PROT_NONE);  // an overflow faults instead of writing into the neighbour
  return static_cast<char*>(low);
}

// Stacks that all began at the same offset of a page would share a few sets of the caches, and every switch
// would miss; a different start for each took a 256-thread tree reduction from 25 to 18 ns a switch.
std::size_t colour() {
  static std::atomic<unsigned> serial{0};
  return serial++ % 128 * 192;
}

}  // namespace

#ifdef EMULATOR_FAST_SWITCH

// The registers that a callee must keep go onto the old stack; the new stack's come back.
extern "C" void emulator_switch(void** from, void* to);
extern "C" void emulator_start();
#if defined(__x86_64__)
asm(R"(
.pushsection .text
.globl emulator_switch
.hidden emulator_switch
emulator_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
.globl emulator_start
.hidden emulator_start
emulator_start:
  movq %r12, %rdi
  callq *%r13
  ud2
.popsection
)");
constexpr int kWords = 9, kArgument = 3, kEntry = 2, kReturn = 6;  // odd: a call expects 16 bytes' alignment after 7 pops
#else
asm(R"(
.pushsection .text
.globl emulator_switch
.hidden emulator_switch
emulator_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]; stp x21, x22, [sp, #16]; stp x23, x24, [sp, #32]; stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]; stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]; stp d10, d11, [sp, #112]; stp d12, d13, [sp, #128]; stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]; ldp x21, x22, [sp, #16]; ldp x23, x24, [sp, #32]; ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]; ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]; ldp d10, d11, [sp, #112]; ldp d12, d13, [sp, #128]; ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.globl emulator_start
.hidden emulator_start
emulator_start:
  mov x0, x19
  blr x20
  brk #0
.popsection
)");
constexpr int kWords = 20, kArgument = 0, kEntry = 1, kReturn = 11;
#endif

Context::Context(std::size_t stack_bytes, void (*entry)(void*), void* argument) : stack_(map_stack(stack_bytes)), bytes_(stack_bytes) {
  auto top = reinterpret_cast<std::uintptr_t>(stack_) + stack_bytes - colour();
  auto** frame = reinterpret_cast<void**>(top) - kWords;
  frame[kArgument] = argument;
  frame[kEntry] = reinterpret_cast<void*>(entry);
  frame[kReturn] = reinterpret_cast<void*>(&emulator_start);
  state_ = frame;
}

Context::~Context() {
  if (stack_) munmap(stack_, bytes_);
}

void Context::swap(Context& from, Context& to) {
  if (&from != &to) emulator_switch(&from.state_, to.state_);
}

#else

namespace {
ucontext_t* made(void*& state) {
  if (!state) state = new ucontext_t;
  return static_cast<ucontext_t*>(state);
}

// makecontext passes ints only: each pointer travels as two.
void enter(unsigned entry_high, unsigned entry_low, unsigned high, unsigned low) {
  auto join = [](unsigned a, unsigned b) { return (static_cast<std::uintptr_t>(a) << 32) | b; };
  reinterpret_cast<void (*)(void*)>(join(entry_high, entry_low))(reinterpret_cast<void*>(join(high, low)));
}
}  // namespace

Context::Context(std::size_t stack_bytes, void (*entry)(void*), void* argument) : stack_(map_stack(stack_bytes)), bytes_(stack_bytes) {
  ucontext_t* context = made(state_);
  getcontext(context);
  context->uc_stack.ss_sp = stack_;
  context->uc_stack.ss_size = stack_bytes;
  context->uc_link = nullptr;
  auto e = reinterpret_cast<std::uintptr_t>(entry), a = reinterpret_cast<std::uintptr_t>(argument);
  makecontext(context, reinterpret_cast<void (*)()>(&enter), 4, static_cast<unsigned>(e >> 32), static_cast<unsigned>(e),
              static_cast<unsigned>(a >> 32), static_cast<unsigned>(a));
}

Context::~Context() {
  delete static_cast<ucontext_t*>(state_);
  if (stack_) munmap(stack_, bytes_);
}

void Context::swap(Context& from, Context& to) { swapcontext(made(from.state_), made(to.state_)); }

#endif

}  // namespace emulator
