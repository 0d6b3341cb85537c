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

constexpr char kMisaligned[] = "an mbarrier whose address is no multiple of 8: declare it as uint64_t, or align it";

bool usable(const void* barrier, SourcePlace place) {
  const char* wrong = reinterpret_cast<std::uintptr_t>(barrier) % 8 ? kMisaligned
                      : state_of(barrier).absent                    ? "an mbarrier that was not initialised: one thread must call mbarrier.init before, and a barrier must follow"
                                                                    : nullptr;
  if (wrong) fail_at(place, wrong);
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
    if (sanitize::on) sanitize::order_blocks();
  }
  return before;
}

class Phase : public Waiting {
 public:
  Phase(const void* barrier, bool parity, SourcePlace place) : Waiting(place), barrier_(barrier), parity_(parity) {}
  bool holds() override { return state_of(barrier_).phase != parity_; }
  bool ends() const override { return true; }
  std::string text() const override {
    const Counts state = state_of(barrier_);
    return "for the end of a phase (parity " + std::to_string(parity_) + ") of the mbarrier at " + core->where(barrier_) +
           ": " + std::to_string(state.missing) + " of " + std::to_string(state.expected) + " arrivals and " + std::to_string(state.bytes) + " bytes are missing";
  }

 private:
  const void* barrier_;
  bool parity_;
};

}  // namespace

void mbarrier_init(void* barrier, std::uint32_t count, SourcePlace place) {
  if (!count || count > kMost) return fail_at(place, "an mbarrier for no arrival, or for more than 1048575");
  if (reinterpret_cast<std::uintptr_t>(barrier) % 8) return fail_at(place, kMisaligned);
  __atomic_store_n(static_cast<std::uint64_t*>(barrier), std::bit_cast<std::uint64_t>(Counts{count, count, 0, 0, 0}), __ATOMIC_SEQ_CST);
}

void mbarrier_end(void* barrier, SourcePlace place) {
  if (usable(barrier, place)) *static_cast<std::uint64_t*>(barrier) = ~std::uint64_t{0};
}

std::uint64_t mbarrier_arrive(void* barrier, std::uint32_t count, SourcePlace place, bool drops) {
  if (!usable(barrier, place)) return 0;
  if (sanitize::on) sanitize::gave(barrier);
  bool too_many = false;
  const std::uint64_t before = update(barrier, [&](Counts& state) {
    too_many = count > state.missing || (drops && count > state.expected);
    if (too_many) return;
    state.missing -= count;
    if (drops) state.expected -= count;
  });
  if (too_many) fail_at(place, "more arrivals at an mbarrier than its phase expects: let as many threads arrive as mbarrier.init says");
  return before;
}

void async_arrive(void* barrier, bool counts, SourcePlace place) {
  if (sanitize::on) sanitize::gave(barrier);
  if (!counts && usable(barrier, place)) update(barrier, [](Counts& state) { ++state.missing; });
  core->engine().work.push_back([barrier, place, copies = unfinished_copies()] {
    make(copies);
    mbarrier_arrive(barrier, 1, place);
  });
}

void mbarrier_expect(void* barrier, std::int64_t bytes, SourcePlace place) {
  if (!usable(barrier, place)) return;
  bool too_many = false;
  update(barrier, [&](Counts& state) {
    const std::int64_t sum = state.bytes + bytes;
    too_many = sum > kMost || sum < -static_cast<std::int64_t>(kMost);
    if (!too_many) state.bytes = sum;
  });
  if (too_many) fail_at(place, "more bytes at an mbarrier than the 1048575 that a phase can count");
}

bool mbarrier_parity(std::uint64_t state) { return std::bit_cast<Counts>(state).phase; }
std::uint32_t mbarrier_missing(std::uint64_t state) { return std::bit_cast<Counts>(state).missing; }

bool mbarrier_wait(const void* barrier, bool parity, SourcePlace place) {
  if (!usable(barrier, place)) return true;
  Phase phase(barrier, parity, place);
  if (core->where(barrier).empty()) {  // other blocks may arrive at it
    while (!phase.holds()) yield();
  } else if (!wait_until(phase)) {
    return false;
  }
  if (sanitize::on) sanitize::took(barrier);
  return true;
}

}  // namespace emulator
