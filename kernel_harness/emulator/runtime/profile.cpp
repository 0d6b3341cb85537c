// Keeps the counts of each launch for a profile, and writes them as JSON. Counted code reports its accesses: see
// counting/count_accesses.cpp. The accesses of a few blocks are recorded by warp: see profile_accesses.h.
#include "emulator/profile.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "emulator/memory.h"
#include "json_text.h"
#include "profile_accesses.h"

namespace emulator {

// Returns whether the address is in the shared memory of the block that runs on this OS thread.
bool is_shared(const void* address);

namespace profile {

bool on = false;

namespace {

// Recorded are this many blocks of a launch, warps of a block, and different launches of a profile.
constexpr std::uint64_t kMostBlocks = 8, kMostWarps = 8, kMostLaunches = 32;
// The instructions of one launch that are reported: those that move the most bytes.
constexpr std::size_t kMostInstructions = 100;

using Count = std::atomic<std::uint64_t>;
using Records = std::vector<std::unique_ptr<BlockRecord>>;

struct Counts {
  std::string kernel;
  dim3 grid, block;
  std::size_t dynamic_bytes;
  Count barriers{0}, warp_operations{0}, global_read{0}, global_written{0}, shared_read{0}, shared_written{0};
  Records records;
  Instructions instructions;
  std::uint64_t sampled_blocks = 0, sampled_warps = 0, left_out = 0;
};

std::deque<Counts> counted;  // a deque, because atomics cannot move
std::uint64_t launch_number = 0;

void add(Count& count, std::uint64_t more = 1) { count.fetch_add(more, std::memory_order_relaxed); }

std::uint64_t volume(const dim3& v) { return static_cast<std::uint64_t>(v.x) * v.y * v.z; }
bool same(const dim3& a, const dim3& b) { return a.x == b.x && a.y == b.y && a.z == b.z; }
bool same(const uint3& a, const uint3& b) { return a.x == b.x && a.y == b.y && a.z == b.z; }

// Returns whether the accesses of the newest launch are recorded: it is unlike each launch that has been recorded.
bool wants_records() {
  const Counts& now = counted.back();
  std::uint64_t recorded = 0;
  for (const Counts& each : counted) {
    if (!each.sampled_blocks) continue;
    if (each.kernel == now.kernel && same(each.grid, now.grid) && same(each.block, now.block) && each.dynamic_bytes == now.dynamic_bytes) return false;
    ++recorded;
  }
  return recorded < kMostLaunches;
}

// Returns the record of the running block, or null if it is not recorded.
BlockRecord* running_record() {
  struct Known {
    std::uint64_t launch = 0;
    uint3 block{};
    BlockRecord* record = nullptr;
  };
  static thread_local Known known;
  if (known.launch == launch_number && same(known.block, blockIdx)) return known.record;
  known = {launch_number, blockIdx, nullptr};
  const std::uint64_t number = (static_cast<std::uint64_t>(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  for (const auto& each : counted.back().records)
    if (each->number == number) known.record = each.get();
  return known.record;
}

// Ends the recording of the newest launch, whose blocks have all ended.
void settle() {
  if (counted.empty()) return;
  Counts& last = counted.back();
  for (const auto& block : last.records) {
    block->settle();
    last.left_out += block->left_out;
    for (const auto& [instruction, traffic] : block->sums) last.instructions[instruction].add(traffic);
  }
  last.records.clear();
}

void put(std::string& text, const char* name, std::uint64_t value) {
  text += std::string(", \"") + name + "\": " + std::to_string(value);
}

void put(std::string& text, const char* name, const dim3& size) {
  text += std::string(", \"") + name + "\": [" + std::to_string(size.x) + ", " + std::to_string(size.y) + ", " + std::to_string(size.z) + "]";
}

void put(std::string& text, const Instruction& instruction, const Traffic& traffic) {
  constexpr const char* kinds[] = {"load", "store", "atomic"};
  Dl_info info{};
  dladdr(instruction.site, &info);
  text += "{\"library\": " + quoted(info.dli_fname ? info.dli_fname : "");
  text += std::string(", \"kind\": \"") + kinds[static_cast<int>(instruction.kind)] + "\"";
  put(text, "shared", instruction.space == Space::kShared);
  put(text, "site", static_cast<std::uint64_t>(static_cast<const char*>(instruction.site) - static_cast<const char*>(info.dli_fbase)));
  put(text, "requests", traffic.requests);
  put(text, "asked_bytes", traffic.asked_bytes);
  put(text, "sectors", traffic.sectors);
  put(text, "least_sectors", traffic.least_sectors);
  put(text, "aligned_sectors", traffic.aligned_sectors);
  put(text, "wavefronts", traffic.wavefronts);
  put(text, "least_wavefronts", traffic.least_wavefronts);
  put(text, "repeated", traffic.repeated);
  put(text, "ways", traffic.ways);
  text += "}";
}

void put_instructions(std::string& text, const Counts& counts) {
  std::vector<Instructions::const_pointer> all;
  for (const auto& each : counts.instructions) all.push_back(&each);
  const auto moved = [](const Traffic& traffic) { return 32 * traffic.sectors + 128 * traffic.wavefronts; };
  std::stable_sort(all.begin(), all.end(), [&](const auto* a, const auto* b) { return moved(a->second) > moved(b->second); });
  text += ", \"instructions\": [";
  for (std::size_t i = 0; i < std::min(all.size(), kMostInstructions); ++i) {
    if (i) text += ", ";
    put(text, all[i]->first, all[i]->second);
  }
  text += "]";
}

}  // namespace

void launched(const Launch& launch) {
  settle();
  counted.emplace_back(launch.kernel, launch.grid, launch.block, launch.shared_bytes);
  ++launch_number;
  if (!wants_records()) return;
  Counts& now = counted.back();
  const std::uint64_t warps = (volume(launch.block) + kWarpSize - 1) / kWarpSize;
  const std::vector<std::uint64_t> sampled = spread(warps, kMostWarps);
  for (const std::uint64_t number : spread(volume(launch.grid), kMostBlocks)) now.records.push_back(std::make_unique<BlockRecord>(number, warps, sampled));
  now.sampled_blocks = now.records.size();
  now.sampled_warps = sampled.size();
}

void met_at_barrier() {
  add(counted.back().barriers);
  if (BlockRecord* record = running_record()) record->settle();
}

void met_in_warp(unsigned first, std::uint32_t lanes) {
  add(counted.back().warp_operations);
  if (BlockRecord* record = running_record()) record->meet(first, lanes);
}

// Counts one access. An access to a kernel's local variable is in neither device nor shared memory and is not counted.
// A compare-and-swap counts as a write only, because the atomic load before it counts as the read.
void touched(const void* address, std::size_t bytes, Access access, const void* site) {
  if (counted.empty() || !in_kernel()) return;
  const bool shared = is_shared(address);
  if (!shared && !is_device(address)) return;
  Counts& now = counted.back();
  const bool reads = access != Access::kStore && access != Access::kAtomicCompare, writes = access != Access::kLoad && access != Access::kAtomicLoad;
  if (reads) add(shared ? now.shared_read : now.global_read, bytes);
  if (writes) add(shared ? now.shared_written : now.global_written, bytes);
  BlockRecord* record = running_record();
  if (!record) return;
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  record->record(thread, reinterpret_cast<std::uintptr_t>(address), bytes, shared ? Space::kShared : Space::kGlobal, access, site);
}

}  // namespace profile
}  // namespace emulator

extern "C" void emulator_profile_begin() {
  emulator::profile::counted.clear();
  emulator::profile::on = true;
}

// Ends the profile. Returns the launches since emulator_profile_begin as a JSON list. The next call overwrites the
// text.
extern "C" const char* emulator_profile_end() {
  using namespace emulator::profile;
  using emulator::quoted;
  static std::string text;
  settle();
  text = "[";
  for (const Counts& each : counted) {
    text += text.size() > 1 ? ", {" : "{";
    text += "\"kernel\": " + quoted(each.kernel);
    put(text, "grid", each.grid);
    put(text, "block", each.block);
    put(text, "dynamic_shared_bytes", each.dynamic_bytes);
    put(text, "barriers", each.barriers);
    put(text, "warp_operations", each.warp_operations);
    put(text, "global_read", each.global_read);
    put(text, "global_written", each.global_written);
    put(text, "shared_read", each.shared_read);
    put(text, "shared_written", each.shared_written);
    put(text, "sampled_blocks", each.sampled_blocks);
    put(text, "sampled_warps", each.sampled_warps);
    put(text, "left_out", each.left_out);
    put_instructions(text, each);
    text += "}";
  }
  text += "]";
  on = false;
  return text.c_str();
}
