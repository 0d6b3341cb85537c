// Groups of blocks that wait for each other, which take turns on one OS thread; and the barrier of a cluster.
#include <algorithm>

#include "emulator/cluster.h"
#include "emulator/functions.h"
#include "emulator/sanitize.h"
#include "pending.h"
#include "traps.h"

namespace emulator {
namespace {

// The numbers of the blocks of a cluster, in the order of their ranks.
std::vector<std::uint64_t> blocks_of(const Launch& launch, std::uint64_t cluster) {
  const dim3 &size = launch.cluster, &grid = launch.grid;
  const std::uint64_t wide = grid.x / size.x, high = grid.y / size.y;
  const std::uint64_t x = cluster % wide * size.x, y = cluster / wide % high * size.y, z = cluster / wide / high * size.z;
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t k = z; k < z + size.z; ++k)
    for (std::uint64_t j = y; j < y + size.y; ++j)
      for (std::uint64_t i = x; i < x + size.x; ++i) numbers.push_back((k * grid.y + j) * grid.x + i);
  return numbers;
}

}  // namespace

std::uint64_t clusters_of(const Launch& launch) { return volume(launch.grid) / volume(launch.cluster); }

Group::Group(const Launch& launch, std::size_t blocks) : shares_(launch.cooperative) {
  for (std::size_t i = 0; i < blocks; ++i) blocks_.push_back(std::make_unique<Core>(this));
  for (auto& block : blocks_) block->begin_launch(launch);
}

void Group::join(const std::vector<std::size_t>& members) {
  std::vector<Core*> peers;
  for (const std::size_t each : members) peers.push_back(blocks_[each].get());
  for (unsigned rank = 0; rank < members.size(); ++rank) peers[rank]->join(peers, rank);
}

void Group::end_launch() {
  blocks_[0]->end_launch();
  core = nullptr;
}

void Group::run(const std::vector<std::uint64_t>& numbers) {
  if (sanitize::on) sanitize::begin_group();
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    core = blocks_[i].get();
    core->begin_block(numbers[i]);
    core->leave();
  }
  while (run_turns() && !fault_set()) {}
  if (!fault_set()) engine_.run_all();
  for (auto& block : blocks_) block->drop_threads();
}

// Gives each block a turn, and lets the copy unit work if no block has done anything. Returns false at the end.
bool Group::run_turns() {
  bool ran = false, spun = false, alive = false;
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    Core& block = *blocks_[sanitize::on ? sanitize::nth_turn(i) : i];
    const Turn turn = block.advance();
    if (block.was_abandoned()) return false;
    ran |= turn == Turn::kRan, spun |= turn == Turn::kSpun, alive |= block.threads_alive() > 0;
  }
  if (!alive) return false;
  if (ran || release_grid() || engine_.run_one() || spun) return true;
  bool ended = false;
  for (auto& block : blocks_) ended |= block->end_waits();
  if (ended) return true;
  report_deadlock();
  return false;
}

// Opens the grid's barrier if all blocks wait there.
bool Group::release_grid() {
  if (!std::all_of(blocks_.begin(), blocks_.end(), [](const auto& block) { return block->waits_at_grid(); })) return false;
  if (sanitize::on) sanitize::release_grid();
  for (auto& block : blocks_) block->release_grid();
  return true;
}

void Group::report_deadlock() {
  const auto waiting = static_cast<std::size_t>(std::count_if(blocks_.begin(), blocks_.end(), [](const auto& block) { return block->waits_at_grid(); }));
  const auto stuck = std::find_if(blocks_.begin(), blocks_.end(), [](const auto& block) { return block->threads_alive() && !block->waits_at_grid(); });
  if (stuck == blocks_.end()) {
    set_fault(std::to_string(waiting) + " blocks wait at a grid barrier that " + std::to_string(blocks_.size() - waiting) + " blocks never reach");
  } else {
    (*stuck)->enter();
    (*stuck)->report_deadlock();
  }
}

void run_grid(const Launch& launch) {
  static thread_local const FaultStack faults;
  const auto blocks = volume(launch.grid);
  Group group(launch, blocks);
  std::vector<std::uint64_t> numbers(blocks);
  for (std::uint64_t i = 0; i < blocks; ++i) numbers[i] = i;
  if (volume(launch.cluster) > 1) {
    for (std::uint64_t i = 0; i < clusters_of(launch); ++i) {
      const auto members = blocks_of(launch, i);
      group.join({members.begin(), members.end()});
    }
  }
  group.run(numbers);
  group.end_launch();
}

void run_clusters(const Launch& launch, const std::function<bool(std::uint64_t&)>& next) {
  static thread_local const FaultStack faults;
  Group group(launch, volume(launch.cluster));
  std::vector<std::size_t> all(volume(launch.cluster));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  group.join(all);
  for (std::uint64_t cluster; !fault_set() && next(cluster);) group.run(blocks_of(launch, cluster));
  group.end_launch();
}

// ------------------------------------------------------------------------------------- the barrier of a cluster

void Core::arrive_in_cluster() {
  pending().cluster_phase(thread_index()) = engine_->cluster_phase;
  ++engine_->cluster_arrived;
  ++engine_->events;
}

// Whether the phase of the cluster's barrier has ended in which the thread arrived: no other thread is missing.
bool Core::passed_cluster(unsigned thread) {
  const auto phase = pending().cluster_phase(thread);
  if (engine_->cluster_phase == phase) {
    unsigned alive = peers_.empty() ? alive_ : 0;
    for (const Core* peer : peers_) alive += peer->alive_;
    if (engine_->cluster_arrived < alive) return false;
    engine_->cluster_arrived = 0;
    ++engine_->cluster_phase;
    if (sanitize::on) sanitize::order_blocks();
  }
  return true;
}

void cluster_arrive() {
  if (sanitize::on) sanitize::gave(core->cluster_barrier());
  core->arrive_in_cluster();
}

void cluster_wait(SourcePlace place) {
  struct Passed : Waiting {
    Core& owner;
    unsigned thread;
    Passed(Core& owner, unsigned thread, SourcePlace place) : Waiting(place), owner(owner), thread(thread) {}
    bool holds() override { return owner.passed_cluster(thread); }
    std::string text() const override { return "at the barrier of its cluster, which other threads never reach"; }
  } passed(*core, thread_index(), place);
  wait_until(passed);
  if (sanitize::on) sanitize::took(core->cluster_barrier());
}

const char* wrong_cluster(const Launch& launch) {
  const dim3 &size = launch.cluster, &grid = launch.grid;
  if (grid.x % size.x || grid.y % size.y || grid.z % size.z) return "the grid is no multiple of the cluster";
  return volume(size) > cluster_limit(launch.kernel) ? "a cluster has more than 8 blocks, or more than 16 of a kernel that may have more" : nullptr;
}

unsigned cluster_rank() { return core->rank(); }
dim3 cluster_size() { return core->launch().cluster; }
void* in_block_of_cluster(const void* address, unsigned rank) { return core->in_block(address, rank); }
unsigned block_of_address(const void* address) { return core->rank_of(address); }

}  // namespace emulator
