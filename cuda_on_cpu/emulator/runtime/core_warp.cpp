// The rendezvous of lanes in a warp operation.
#include <algorithm>
#include <bit>
#include <cstring>

#include "core.h"
#include "emulator/profile.h"
#include "emulator/sanitize.h"

namespace emulator {

void Core::release(Gathering& gathering, unsigned first) {
  std::memcpy(gathering.values, gathering.given, sizeof gathering.given);
  gathering.lanes = gathering.arrived;
  if (profile::on) profile::met_in_warp(first, gathering.lanes);
  if (sanitize::on) sanitize::release_warp(first, gathering.lanes);
  gathering.arrived = 0;
  for (unsigned i = 0; i < kWarpSize; ++i)
    if (gathering.lanes >> i & 1) push_ready(first + i);
}

// Returns the gathering for `mask`: the one that has this mask, else a new one, else one that is not in use. A gathering
// is in use while lanes wait in it or are about to read its outcome. A lane is in one gathering at a time, so a warp
// needs no more gatherings than it has lanes. Their addresses never change, because lanes keep pointers to them. `lane`
// is the caller, which is in no gathering.
Gathering& Core::gathering_of(unsigned which, unsigned lane, std::uint32_t mask) {
  auto& all = warps_[which].gatherings;
  for (Gathering& each : all)
    if (each.mask == mask) return each;
  if (all.size() < kWarpSize) {
    all.reserve(kWarpSize);
    all.emplace_back();
  }
  Gathering* free = &all.back();
  if (free->mask) free = &*std::find_if(all.begin(), all.end(), [&](const Gathering& each) { return !each.arrived && !is_read(each, which * kWarpSize, lane); });
  free->mask = mask;
  return *free;
}

// Returns whether a lane other than `except` is about to read the outcome of a gathering. `first` is the index of the
// warp's first thread.
bool Core::is_read(const Gathering& gathering, unsigned first, unsigned except) const {
  const auto answer = reinterpret_cast<std::uint64_t>(static_cast<const Meeting*>(&gathering));
  for (unsigned i = 0; i < ready_count_; ++i) {
    const unsigned index = ready_[(ready_head_ + i) % ready_.size()], lane = index - first;
    if (index >= first && lane < kWarpSize && lane != except && gathering.lanes >> lane & 1 && threads_[index].state->answer == answer) return true;
  }
  return false;
}

State Core::wait_in_warp(std::uint32_t mask, std::uint64_t value, State here) {
  const unsigned index = index_of(suspended(here)), which = index / kWarpSize, bit = index % kWarpSize;
  if (sanitize::on) sanitize::arrive(index, caller_of(here), false);
  if (!(mask >> bit & 1)) {
    if (sanitize::on) sanitize::outside_mask(index);
    set_fault(name(index) + " calls a warp operation whose mask does not include its lane");
    mask |= 1u << bit;
  }
  Gathering& gathering = gathering_of(which, bit, mask);
  if (sanitize::on) sanitize::ignore_memory(warps_[which].gatherings.data(), kWarpSize * sizeof(Gathering));
  gathering.given[bit] = value;
  gathering.arrived |= 1u << bit;
  here->answer = reinterpret_cast<std::uint64_t>(static_cast<const Meeting*>(&gathering));
  if (gathering.arrived == (mask & warps_[which].alive)) release(gathering, which * kWarpSize);
  return next();
}

State Core::wait_for_lanes(std::uint64_t place, State here) {
  const unsigned index = index_of(suspended(here)), bit = index % kWarpSize;
  Warp& warp = warps_[index / kWarpSize];
  warp.call_chain[bit] = place ? place : call_chain_hash();
  warp.converging |= 1u << bit;
  ++converging_;
  return next();
}

// In each warp with converging lanes, wakes the lanes whose place in the code is the first of all. These lanes run
// together from then on.
void Core::release_converged() {
  for (unsigned w = 0; w < warps_.size(); ++w) {
    Warp& warp = warps_[w];
    if (!warp.converging) continue;
    std::uint64_t chain = ~0ull;
    for (std::uint32_t rest = warp.converging; rest; rest &= rest - 1) chain = std::min(chain, warp.call_chain[std::countr_zero(rest)]);
    std::uint32_t together = 0;
    for (unsigned i = 0; i < kWarpSize; ++i)
      if (warp.converging >> i & 1 && warp.call_chain[i] == chain) together |= 1u << i;
    warp.converging &= ~together;
    for (std::uint32_t rest = together; rest; rest &= rest - 1) {
      const unsigned index = w * kWarpSize + std::countr_zero(rest);
      threads_[index].state->answer = together;
      --converging_;
      push_ready(index);
    }
  }
}

State in_warp(std::uint64_t mask, std::uint64_t value, State here) { return core->wait_in_warp(static_cast<std::uint32_t>(mask), value, here); }
State for_lanes(std::uint64_t place, std::uint64_t, State here) { return core->wait_for_lanes(place, here); }

}  // namespace emulator
