// Counts the basic blocks that warps execute.
#include "profile_steps.h"

#include <algorithm>

namespace emulator::profile {

unsigned Steps::index_of(const void* site) {
  unsigned& guess = recent_[reinterpret_cast<std::uintptr_t>(site) % recent_.size()];
  if (guess < sites_.size() && sites_[guess] == site) return guess;
  const auto [found, fresh] = index_of_.try_emplace(site, static_cast<unsigned>(sites_.size()));
  if (fresh) {
    sites_.push_back(site);
    executed_.emplace_back();
  }
  return guess = found->second;
}

void Steps::add(std::size_t number, unsigned lane, const void* site) {
  Warp& warp = warps_[number];
  const unsigned index = index_of(site);
  if (index >= warp.counts.size()) warp.counts.resize(index + 1);
  Counts& counts = warp.counts[index];
  if (!counts.begun) warp.begun.push_back(index);
  counts.begun = true;
  ++counts.of[lane];
}

void Steps::meet(std::size_t number) {
  Warp& warp = warps_[number];
  for (const unsigned index : warp.begun) {
    Counts& counts = warp.counts[index];
    const std::uint64_t most = *std::max_element(counts.of.begin(), counts.of.end());
    executed_[index].warps += most;
    warp.executed += most;
    for (const std::uint32_t n : counts.of) executed_[index].threads += n;
    counts = {};
  }
  warp.begun.clear();
}

void Steps::settle() {
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < warps_.size(); ++i) {
    meet(i);
    most = std::max(most, warps_[i].executed);
  }
  waitable += most * warps_.size();
  for (Warp& warp : warps_) {
    waited += most - warp.executed;
    warp.executed = 0;
  }
}

std::map<const void*, Executed> Steps::sums() const {
  std::map<const void*, Executed> all;
  for (std::size_t i = 0; i < sites_.size(); ++i) all[sites_[i]] = executed_[i];
  return all;
}

}  // namespace emulator::profile
