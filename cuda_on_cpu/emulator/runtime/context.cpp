// Implements the switch between contexts, and allocates their stacks. A guard page lies below each stack.
#include "emulator/context.h"

#include <sys/mman.h>
#include <unistd.h>
#include <unwind.h>

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

// Each stack begins at another offset within a page. With equal offsets, all stacks share a few cache sets, and every
// switch misses the cache. Different offsets reduced a switch in a 256-thread tree reduction from 25 to 18 ns.
std::size_t colour() {
  static std::atomic<unsigned> serial{0};
  return serial++ % 128 * 192;
}

}  // namespace

// Hashes return addresses with FNV-1a. http://www.isthe.com/chongo/tech/comp/fnv/
std::uint64_t call_chain_hash() {
  std::uint64_t hash = 0xcbf29ce484222325;
  _Unwind_Backtrace([](_Unwind_Context* frame, void* total) {
    auto& hash = *static_cast<std::uint64_t*>(total);
    hash = (hash ^ _Unwind_GetIP(frame)) * 0x100000001b3;
    return _URC_NO_REASON;
  }, &hash);
  return hash;
}

Stack::Stack(std::size_t bytes) : bytes_(bytes) {
  void* low = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (low == MAP_FAILED) throw std::bad_alloc();
  mprotect(low, page(), PROT_NONE);  // a stack overflow faults here, instead of writing into the next stack
  low_ = static_cast<char*>(low);
  top_ = low_ + bytes_ - colour();
}

Stack::~Stack() { munmap(low_, bytes_); }

#ifdef EMULATOR_FAST_SWITCH

// The switch pushes the callee-saved registers onto the stack, and pops those of the chosen state from its stack. The
// CFI directives describe the frame to code that walks the stack while `choose` runs.
extern "C" void emulator_start();
#if defined(__x86_64__)
asm(R"(
.pushsection .text
.globl emulator_wait
.type emulator_wait, @function
emulator_wait:
  .cfi_startproc
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15; pushq %rax
  .cfi_def_cfa_offset 64
  movq %rdx, %rax
  movq %rsp, %rdx
  callq *%rax
  movq %rax, %rsp
  popq %rax; popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  popq %rcx
  jmpq *%rcx
  .cfi_endproc
.globl emulator_start
.hidden emulator_start
emulator_start:
  movq %r12, %rdi
  callq *%r13
  ud2
.popsection
)");
constexpr int kWords = 10, kArgument = 4, kEntry = 3, kReturn = 7;  // even, for the ABI's 16-byte alignment
#else
asm(R"(
.pushsection .text
.globl emulator_wait
.type emulator_wait, %function
emulator_wait:
  .cfi_startproc
  sub sp, sp, #176
  stp x19, x20, [sp, #16]; stp x21, x22, [sp, #32]; stp x23, x24, [sp, #48]; stp x25, x26, [sp, #64]
  stp x27, x28, [sp, #80]; stp x29, x30, [sp, #96]
  stp d8, d9, [sp, #112]; stp d10, d11, [sp, #128]; stp d12, d13, [sp, #144]; stp d14, d15, [sp, #160]
  .cfi_def_cfa_offset 176
  .cfi_offset x30, -72
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
  .cfi_endproc
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
  auto** frame = reinterpret_cast<void**>(top_) - kWords;
  frame[kArgument] = argument;
  frame[kEntry] = reinterpret_cast<void*>(entry);
  frame[kReturn] = reinterpret_cast<void*>(&emulator_start);
  return reinterpret_cast<State>(frame);
}

const void* caller_of(State state) { return reinterpret_cast<void**>(state)[kReturn]; }

#else

namespace {

struct Here : SavedState {
  ucontext_t context;
  const void* caller;
};

// makecontext passes only ints to the entry function, so each pointer is passed as two ints.
void enter(unsigned entry_high, unsigned entry_low, unsigned high, unsigned low) {
  auto join = [](unsigned a, unsigned b) { return (static_cast<std::uintptr_t>(a) << 32) | b; };
  reinterpret_cast<void (*)(void*)>(join(entry_high, entry_low))(reinterpret_cast<void*>(join(high, low)));
}

}  // namespace

State Stack::begin(void (*entry)(void*), void* argument) {
  auto* left = new (top_ - (sizeof(Here) + 15) / 16 * 16) Here;
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
