// The state of an mbarrier, in the 8 bytes of the object: the missing arrivals, the arrivals that a phase expects, the
// missing bytes, which can be negative for a while, and the parity of the phase.
#include "emulator/mbarrier.h"

#include <string>

#include "emulator/sanitize.h"
#include "pending.h"

namespace emulator {
namespace {

constexpr std::uint32_t kMost = (1 << 20) - 1;

struct Counts {
  std::uint64_t missing : 20, expected : 20;
  std::int64_t bytes : 22;
  std::uint64_t phase : 1, absent : 1;  // `absent` is set in shared memory that no thread has written
};
static_assert(sizeof(Counts) == 8);

Counts state_of(const void* barrier) { return std::bit_cast<Counts>(__atomic_load_n(static_cast<const std::uint64_t*>(barrier), __ATOMIC_SEQ_CST)); }

bool usable(const void* barrier) {
  const char* wrong = reinterpret_cast<std::uintptr_t>(barrier) % 8 ? "an mbarrier whose address is no multiple of 8" : state_of(barrier).absent ? "an mbarrier that was not initialised" : nullptr;
  if (wrong) fail_in_kernel(wrong);
  return !wrong;
}

// Changes the state by `change`, and begins the next phase if nothing is missing then. Returns the state before.
template <class Change>
std::uint64_t update(void* barrier, Change change) {
  auto* bits = static_cast<std::uint64_t*>(barrier);
  std::uint64_t before = __atomic_load_n(bits, __ATOMIC_SEQ_CST), after;
  bool opens;
  do {
    auto state = std::bit_cast<Counts>(before);
    change(state);
    opens = !state.missing && !state.bytes;
    if (opens) state.missing = state.expected, state.phase ^= 1;
    after = std::bit_cast<std::uint64_t>(state);
  } while (!__atomic_compare_exchange_n(bits, &before, after, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
  ++core->engine().events;
  if (opens) {
    make_copies_of(barrier);
    if (sanitize::on) sanitize::order_block();
  }
  return before;
}

class Phase : public Waiting {
 public:
  Phase(const void* barrier, bool parity, SourcePlace place) : barrier_(barrier), parity_(parity), place_(place) {}
  bool holds() override { return state_of(barrier_).phase != parity_; }
  bool ends() const override { return true; }
  std::string text() const override {
    const Counts state = state_of(barrier_);
    return text_of(place_) + " for the end of a phase (parity " + std::to_string(parity_) + ") of the mbarrier at " + core->where(barrier_) +
           ": " + std::to_string(state.missing) + " of " + std::to_string(state.expected) + " arrivals and " + std::to_string(state.bytes) + " bytes are missing";
  }

 private:
  const void* barrier_;
  bool parity_;
  SourcePlace place_;
};

}  // namespace

void mbarrier_init(void* barrier, std::uint32_t count) {
  if (!count || count > kMost) return fail_in_kernel("an mbarrier for no arrival, or for more than 1048575");
  if (reinterpret_cast<std::uintptr_t>(barrier) % 8) return fail_in_kernel("an mbarrier whose address is no multiple of 8");
  __atomic_store_n(static_cast<std::uint64_t*>(barrier), std::bit_cast<std::uint64_t>(Counts{count, count, 0, 0, 0}), __ATOMIC_SEQ_CST);
}

void mbarrier_end(void* barrier) {
  if (usable(barrier)) *static_cast<std::uint64_t*>(barrier) = ~std::uint64_t{0};
}

std::uint64_t mbarrier_arrive(void* barrier, std::uint32_t count, bool drops) {
  if (!usable(barrier)) return 0;
  bool too_many = false;
  const std::uint64_t before = update(barrier, [&](Counts& state) {
    too_many = count > state.missing || (drops && count > state.expected);
    if (too_many) return;
    state.missing -= count;
    if (drops) state.expected -= count;
  });
  if (too_many) fail_in_kernel("more arrivals at an mbarrier than its phase expects");
  return before;
}

void mbarrier_more(void* barrier) {
  if (usable(barrier)) update(barrier, [](Counts& state) { ++state.missing; });
}

void mbarrier_expect(void* barrier, std::int64_t bytes) {
  if (!usable(barrier)) return;
  bool too_many = false;
  update(barrier, [&](Counts& state) {
    const std::int64_t sum = state.bytes + bytes;
    too_many = sum > kMost || sum < -static_cast<std::int64_t>(kMost);
    if (!too_many) state.bytes = sum;
  });
  if (too_many) fail_in_kernel("more bytes at an mbarrier than the 1048575 that a phase can count");
}

bool mbarrier_parity(std::uint64_t state) { return std::bit_cast<Counts>(state).phase; }
std::uint32_t mbarrier_missing(std::uint64_t state) { return std::bit_cast<Counts>(state).missing; }

bool mbarrier_wait(const void* barrier, bool parity, SourcePlace place) {
  if (!usable(barrier)) return true;
  Phase phase(barrier, parity, place);
  if (core->where(barrier).empty()) {  // other blocks may arrive at it
    while (!phase.holds()) yield();
    return true;
  }
  return wait_until(phase);
}

}  // namespace emulator
