// Keeps the counts of each launch for a profile, and writes them as JSON. Counted code reports its accesses and basic
// blocks: see counting/count_accesses.cpp. Those of a few blocks are recorded by warp: see profile_accesses.h and
// profile_warps.h.
#include "emulator/profile.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "emulator/memory.h"
#include "json_text.h"
#include "profile_accesses.h"
#include "profile_warps.h"

namespace emulator {

namespace profile {

bool on = false;

namespace {

// Recorded are all warps of some blocks of a launch: so many that they have at least kMostWarps warps, and no fewer than
// kLeastBlocks. Of a profile, kMostLaunches different launches are recorded. Equal ones are recorded, too, as long as
// fewer than kMostWarps warps of them are.
constexpr std::uint64_t kMostWarps = 512, kLeastBlocks = 8;
constexpr std::uint64_t kMostLaunches = 32;
// The instructions of one launch that are reported: those that move the most bytes.
constexpr std::size_t kMostInstructions = 100;
// The basic blocks of one launch that are reported: those that warps execute most often.
constexpr std::size_t kMostSteps = 400;

using Count = std::atomic<std::uint64_t>;
using Records = std::vector<std::unique_ptr<BlockRecord>>;

// What asynchronous units do for a line of the source: copies of the bulk units and the bytes of global memory that these
// access, or products of warpgroups and their operations.
struct UnitCounts {
  std::uint64_t copies = 0, read = 0, written = 0, products = 0, operations = 0;
};

struct Counts {
  std::string kernel;
  dim3 grid, block;
  std::size_t dynamic_bytes;
  Count barriers{0}, warp_operations{0}, global_read{0}, global_written{0}, shared_read{0}, shared_written{0};
  Records records;
  Instructions instructions;
  std::uint64_t recorded_launches = 0, sampled_blocks = 0, left_out = 0;
  std::map<const void*, Executed> steps;
  std::map<std::pair<std::string, int>, UnitCounts> units;  // by file and line
};
std::mutex units_mutex;

// The update that the thread which runs on this OS thread has begun, and whether it adds 1 without use for the result.
thread_local Update update = Update::kNative;
thread_local bool adds_one = false;

std::deque<Counts> counted;  // a deque, because atomics cannot move
std::uint64_t launch_number = 0;

void add(Count& count, std::uint64_t more = 1) { count.fetch_add(more, std::memory_order_relaxed); }

std::uint64_t volume(const dim3& v) { return static_cast<std::uint64_t>(v.x) * v.y * v.z; }
bool same(const dim3& a, const dim3& b) { return a.x == b.x && a.y == b.y && a.z == b.z; }
bool same(const uint3& a, const uint3& b) { return a.x == b.x && a.y == b.y && a.z == b.z; }

std::uint64_t warps_of(const dim3& block) { return (volume(block) + kWarpSize - 1) / kWarpSize; }

// Returns the first launch of the kernel and sizes of the newest one, to which the counts of equal launches are added.
Counts& first_equal() {
  const Counts& now = counted.back();
  return *std::find_if(counted.begin(), counted.end(), [&](const Counts& each) {
    return each.kernel == now.kernel && same(each.grid, now.grid) && same(each.block, now.block) && each.dynamic_bytes == now.dynamic_bytes;
  });
}

// Returns whether the accesses of the newest launch are recorded.
bool wants_records() {
  const Counts& first = first_equal();
  if (&first != &counted.back()) return first.sampled_blocks && first.sampled_blocks * warps_of(first.block) < kMostWarps;
  return static_cast<std::uint64_t>(std::count_if(counted.begin(), counted.end(), [](const Counts& each) { return each.sampled_blocks; })) < kMostLaunches;
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
  if (known.launch == launch_number && known.record) known.record->release();
  known = {launch_number, blockIdx, nullptr};
  const std::uint64_t number = (static_cast<std::uint64_t>(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  for (const auto& each : counted.back().records)
    if (each->number == number) known.record = each.get();
  return known.record;
}

// Returns the record of the block that runs on this OS thread, or null if no kernel runs here or it is not recorded.
BlockRecord* recording() { return !counted.empty() && in_kernel() ? running_record() : nullptr; }

unsigned running_thread() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }

// Ends the recording of the newest launch, whose blocks have all ended.
void settle() {
  if (counted.empty() || counted.back().records.empty()) return;
  const Records records = std::move(counted.back().records);
  Counts& last = first_equal();
  ++last.recorded_launches;
  last.sampled_blocks += records.size();
  for (const auto& block : records) {
    block->settle();
    last.left_out += block->left_out;
    for (const auto& [site, executed] : block->executed()) {
      last.steps[site].warps += executed.warps;
      last.steps[site].threads += executed.threads;
    }
    for (const auto& [instruction, traffic] : block->sums) last.instructions[instruction].add(traffic);
  }
}

void put(std::string& text, const char* name, std::uint64_t value) {
  text += std::string(", \"") + name + "\": " + std::to_string(value);
}

void put(std::string& text, const char* name, const dim3& size) {
  text += std::string(", \"") + name + "\": [" + std::to_string(size.x) + ", " + std::to_string(size.y) + ", " + std::to_string(size.z) + "]";
}

// Writes the library of a machine instruction and its address in that file.
void put_site(std::string& text, const void* site) {
  Dl_info info{};
  dladdr(site, &info);
  text += "{\"library\": " + quoted(info.dli_fname ? info.dli_fname : "");
  put(text, "site", static_cast<std::uint64_t>(static_cast<const char*>(site) - static_cast<const char*>(info.dli_fbase)));
}

void put(std::string& text, const Instruction& instruction, const Traffic& traffic) {
  constexpr const char* kinds[] = {"load", "store", "atomic", "copy"};
  put_site(text, instruction.site);
  text += std::string(", \"kind\": \"") + kinds[static_cast<int>(instruction.kind)] + "\"";
  put(text, "shared", instruction.space == Space::kShared);
  for (const auto& [name, sum] : kSums) put(text, name, traffic.*sum);
  put(text, "ways", traffic.ways);
  put(text, "distance", traffic.distance);
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

void put_steps(std::string& text, const Counts& counts) {
  std::vector<std::map<const void*, Executed>::const_pointer> all;
  for (const auto& each : counts.steps) all.push_back(&each);
  std::stable_sort(all.begin(), all.end(), [](const auto* a, const auto* b) { return a->second.warps > b->second.warps; });
  text += ", \"steps\": [";
  for (std::size_t i = 0; i < std::min(all.size(), kMostSteps); ++i) {
    if (i) text += ", ";
    put_site(text, all[i]->first);
    put(text, "warps", all[i]->second.warps);
    put(text, "threads", all[i]->second.threads);
    text += "}";
  }
  text += "]";
}

void put_units(std::string& text, const Counts& counts) {
  text += ", \"units\": [";
  for (const auto& [place, units] : counts.units) {
    if (text.back() != '[') text += ", ";
    text += "{\"file\": " + quoted(place.first);
    put(text, "line", static_cast<std::uint64_t>(place.second));
    put(text, "copies", units.copies);
    put(text, "read", units.read);
    put(text, "written", units.written);
    put(text, "products", units.products);
    put(text, "operations", units.operations);
    text += "}";
  }
  text += "]";
}

UnitCounts& units_of(SourcePlace place) { return first_equal().units[{place.file, place.line}]; }

}  // namespace

void launched(const Launch& launch) {
  settle();
  counted.emplace_back(launch.kernel, launch.grid, launch.block, launch.shared_bytes);
  ++launch_number;
  if (!wants_records()) return;
  const std::uint64_t most = std::max(kLeastBlocks, kMostWarps / std::max<std::uint64_t>(warps_of(launch.block), 1));
  for (const std::uint64_t number : spread(volume(launch.grid), most)) counted.back().records.push_back(std::make_unique<BlockRecord>(number, volume(launch.block)));
}

void met_at_barrier() {
  add(counted.back().barriers);
  if (BlockRecord* record = running_record()) record->settle();
}

void met_in_warp(unsigned first, std::uint32_t lanes) {
  add(counted.back().warp_operations);
  if (BlockRecord* record = running_record()) record->meet(first, lanes);
}

void counts_up() { adds_one = true; }

void begins_update(Update kind) { update = std::exchange(adds_one, false) && kind == Update::kNative ? Update::kCount : kind; }

// Counts one access. An access to a kernel's local variable is in neither device nor shared memory and is not counted.
// A compare-and-swap counts as a write only, because the atomic load before it counts as the read.
void touched(const void* address, std::size_t bytes, Access access, const void* site, std::uint32_t widest) {
  if (counted.empty() || !in_kernel()) return;
  const bool shared = is_shared(address);
  if (!shared && !is_device(address)) return;
  Counts& now = counted.back();
  const bool reads = access != Access::kStore && access != Access::kCopy && access != Access::kAtomicCompare, writes = access != Access::kLoad && access != Access::kVolatileLoad && access != Access::kAtomicLoad;
  if (reads) add(shared ? now.shared_read : now.global_read, bytes);
  if (writes) add(shared ? now.shared_written : now.global_written, bytes);
  BlockRecord* record = running_record();
  if (!record) return;
  record->record(running_thread(), reinterpret_cast<std::uintptr_t>(address), bytes, shared ? Space::kShared : Space::kGlobal, access, site, widest, update);
}

void copied(SourcePlace place, std::uint64_t read, std::uint64_t written) {
  add(counted.back().global_read, read);
  add(counted.back().global_written, written);
  const std::lock_guard lock(units_mutex);
  UnitCounts& units = units_of(place);
  ++units.copies, units.read += read, units.written += written;
}

void multiplied(SourcePlace place, std::uint64_t operations) {
  const std::lock_guard lock(units_mutex);
  UnitCounts& units = units_of(place);
  ++units.products, units.operations += operations;
}

void stepped(const void* site) {
  if (BlockRecord* record = recording()) record->step(running_thread(), site);
}

void begins_loop(const void* site, bool remainder_last) {
  if (BlockRecord* record = recording()) record->begin_loop(running_thread(), site, remainder_last);
}

void begins_step() {
  if (BlockRecord* record = recording()) record->begin_step(running_thread());
}

void ends_loop() {
  if (BlockRecord* record = recording()) record->end_loop(running_thread());
}

void called() {
  if (BlockRecord* record = recording()) record->change_depth(running_thread(), 1);
}

void returned() {
  if (BlockRecord* record = recording()) record->change_depth(running_thread(), -1);
}

}  // namespace profile
}  // namespace emulator

// Begins a profile.
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
    put(text, "recorded_launches", each.recorded_launches);
    put(text, "sampled_blocks", each.sampled_blocks);
    put(text, "left_out", each.left_out);
    put_instructions(text, each);
    put_steps(text, each);
    put_units(text, each);
    text += "}";
  }
  text += "]";
  on = false;
  return text.c_str();
}
