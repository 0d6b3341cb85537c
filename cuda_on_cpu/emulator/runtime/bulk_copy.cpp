// Bulk copies, the groups of bulk stores, and reductions in bulk.
#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <optional>

#include "emulator/bfloat16.h"
#include "emulator/half.h"
#include "emulator/mbarrier.h"
#include "emulator/memory.h"
#include "emulator/profile.h"
#include "emulator/sanitize.h"
#include "pending.h"

namespace emulator {
namespace {

bool aligned(const void* to, const void* from, std::uint32_t bytes, SourcePlace place) {
  const auto lacks = [&](const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 != 0; };
  const char* wrong = lacks(to)     ? "a bulk copy to an address that is no multiple of 16: align the array, and each piece of it"
                      : lacks(from) ? "a bulk copy from an address that is no multiple of 16: align the array, and each piece of it"
                      : bytes % 16  ? "a bulk copy of a size that is no multiple of 16 bytes: copy the rest by ordinary instructions"
                                    : nullptr;
  if (wrong) fail_at(place, wrong);
  return !wrong;
}

template <class T>
T reduced(BulkOperation operation, T old, T value) {
  switch (operation) {
    case BulkOperation::kAdd: return static_cast<T>(old + value);
    case BulkOperation::kMin: return value < old ? value : old;
    case BulkOperation::kMax: return old < value ? value : old;
    default: break;
  }
  if constexpr (std::is_integral_v<T>) {
    switch (operation) {
      case BulkOperation::kInc: return old >= value ? 0 : old + 1;
      case BulkOperation::kDec: return old == 0 || old > value ? value : old - 1;
      case BulkOperation::kAnd: return old & value;
      case BulkOperation::kOr: return old | value;
      case BulkOperation::kXor: return old ^ value;
      default: break;
    }
  }
  return old;
}

template <class T>
void reduce_all(void* to, const void* from, std::size_t bytes, BulkOperation operation) {
  static std::mutex one;  // blocks on other cores may update the same numbers
  std::lock_guard lock(one);
  for (std::size_t at = 0; at + sizeof(T) <= bytes; at += sizeof(T)) {
    T old, value;
    std::memcpy(static_cast<void*>(&old), static_cast<char*>(to) + at, sizeof old);
    std::memcpy(static_cast<void*>(&value), static_cast<const char*>(from) + at, sizeof value);
    T result;
    if constexpr (std::is_same_v<T, __half>) result = __float2half_rn(reduced(operation, static_cast<float>(widened(old)), static_cast<float>(widened(value))));
    else if constexpr (std::is_same_v<T, __nv_bfloat16>) result = __float2bfloat16_rn(reduced(operation, static_cast<float>(widened(old)), static_cast<float>(widened(value))));
    else result = reduced(operation, old, value);
    std::memcpy(static_cast<char*>(to) + at, static_cast<const void*>(&result), sizeof result);
  }
}

}  // namespace

void reduce_bytes(void* to, const void* from, std::size_t bytes, const Reduction& by) {
  switch (by.type) {
    case BulkType::kU32: return reduce_all<std::uint32_t>(to, from, bytes, by.operation);
    case BulkType::kS32: return reduce_all<std::int32_t>(to, from, bytes, by.operation);
    case BulkType::kU64: return reduce_all<std::uint64_t>(to, from, bytes, by.operation);
    case BulkType::kS64: return reduce_all<std::int64_t>(to, from, bytes, by.operation);
    case BulkType::kHalf: return reduce_all<__half>(to, from, bytes, by.operation);
    case BulkType::kBfloat16: return reduce_all<__nv_bfloat16>(to, from, bytes, by.operation);
    case BulkType::kFloat: return reduce_all<float>(to, from, bytes, by.operation);
    case BulkType::kDouble: return reduce_all<double>(to, from, bytes, by.operation);
  }
}

void fence_proxy_async() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (sanitize::on) sanitize::fence_proxy();
}

// The copies are made later, not by the thread that would fault then.
void check_room(const void* address, std::size_t bytes, SourcePlace place) {
  if (!core->overruns(address, bytes)) return;
  trap((text_of(place) + ": a bulk copy that exceeds shared memory: compare its size with that of the array").c_str(), cudaErrorIllegalAddress,
       sanitize::on ? sanitize::caller_of(place) : nullptr);
}

void add_load(void* to, void* barrier, std::uint32_t mask, std::uint32_t bytes, SourcePlace place, std::function<void(void*)> copy) {
  check_room(to, bytes, place);
  Core* const owner = core;
  const auto load = [=](void* to, void* barrier) {
    if (sanitize::on) sanitize::unit_writes(to, bytes, place), sanitize::gave(barrier);
    owner->engine().work.push_back([=] {
      copy(to);
      if (sanitize::on) sanitize::arrived(to, bytes);
      mbarrier_expect(barrier, -static_cast<std::int64_t>(bytes), place);
    });
  };
  if (!mask) return load(to, barrier);
  for (unsigned rank = 0; rank < 16; ++rank)
    if (mask >> rank & 1) load(owner->in_block(to, rank), owner->in_block(barrier, rank));
}

void add_store(const void* from, std::size_t bytes, SourcePlace place, std::function<void()> copy) {
  check_room(from, bytes, place);
  Core* const owner = core;
  const unsigned thread = thread_index();
  BulkGroups& groups = owner->pending().bulk(thread);
  const std::uint64_t group = groups.committed();  // the number that the open group will have
  if (sanitize::on) sanitize::unit_reads(from, bytes, place, {kWarpgroups + thread, group + 1});
  ++groups.open;
  owner->engine().work.push_back([=] {
    copy();
    BulkGroups& groups = owner->pending().bulk(thread);
    const std::uint64_t place = group - groups.finished;
    --(place < groups.unfinished.size() ? groups.unfinished[place] : groups.open);
    groups.retire();
  });
}

namespace {
// Returns what copies the bytes at the address that `source` gives to a place, or reduces the numbers there by them.
template <class Source>
std::function<void(void*)> copy_of(Source source, std::uint32_t bytes, const Reduction* reduction) {
  const auto by = reduction ? std::optional(*reduction) : std::nullopt;
  return [source, bytes, by](void* to) { by ? reduce_bytes(to, source(), bytes, *by) : static_cast<void>(std::memcpy(to, source(), bytes)); };
}
std::function<void(void*)> copy_of(const void* from, std::uint32_t bytes, const Reduction* reduction) {
  return copy_of([from]() -> const void* { return from; }, bytes, reduction);
}
}  // namespace

void bulk_load(void* to, const void* from, std::uint32_t bytes, void* barrier, SourcePlace place, std::uint32_t mask, const Reduction* reduction) {
  if (!aligned(to, from, bytes, place)) return;
  if (sanitize::on) sanitize::unit_reads(from, bytes, place);
  if (profile::on && is_device(from)) profile::copied(place, bytes, 0);
  add_load(to, barrier, mask, bytes, place, copy_of(from, bytes, reduction));
}

void async_store(void* to, const void* value, std::uint32_t bytes, void* barrier, SourcePlace place, const Reduction* reduction) {
  std::array<char, 16> kept;  // the longest has four numbers of 32 bits
  std::memcpy(kept.data(), value, bytes);
  add_load(to, barrier, 0, bytes, place, copy_of([kept]() -> const void* { return kept.data(); }, bytes, reduction));
}

void bulk_store(void* to, const void* from, std::uint32_t bytes, SourcePlace place, const Reduction* reduction) {
  if (!aligned(to, from, bytes, place)) return;
  add_store(from, bytes, place, [to, copy = copy_of(from, bytes, reduction)] { copy(to); });
  if (sanitize::on) sanitize::unit_writes(to, bytes, place, reduction);
  if (profile::on) profile::copied(place, 0, bytes);
}

void bulk_commit() {
  BulkGroups& groups = core->pending().bulk(thread_index());
  groups.unfinished.push_back(groups.open);
  groups.open = 0;
  groups.retire();
}

void bulk_wait(unsigned newest_left, SourcePlace place) {
  struct Finished : Waiting {
    BulkGroups& groups;
    unsigned newest_left;
    Finished(BulkGroups& groups, unsigned newest_left, SourcePlace place) : Waiting(place), groups(groups), newest_left(newest_left) {}
    bool holds() override { return groups.unfinished.size() <= newest_left; }
    std::string text() const override { return "for bulk copies that never end"; }
  } finished(core->pending().bulk(thread_index()), newest_left, place);
  wait_until(finished);
  const std::uint64_t committed = finished.groups.committed();
  if (sanitize::on) sanitize::reads_ended({kWarpgroups + thread_index(), committed - std::min<std::uint64_t>(committed, newest_left)});
}

}  // namespace emulator
