// Records the accesses of a block by warp, and counts the sectors and bank conflicts of each request.
#include "profile_accesses.h"

#include <algorithm>
#include <bit>

namespace emulator::profile {
namespace {

constexpr std::uintptr_t kSectorBytes = 32, kWordBytes = 4, kBanks = 32;
constexpr std::uint32_t kWidest = 16;          // the most bytes that one instruction reads or writes for a thread
constexpr std::uint32_t kMostRequests = 1024;  // of a warp at one instruction between two barriers

// Calls `each` with every lane of the mask.
template <class Each>
void for_lanes(std::uint32_t lanes, Each each) {
  for (; lanes; lanes &= lanes - 1) each(static_cast<unsigned>(std::countr_zero(lanes)));
}

// Returns the sorted addresses of the request's threads.
std::vector<std::uintptr_t> sorted(const Request& request) {
  std::vector<std::uintptr_t> all;
  all.reserve(kWarpSize);
  for_lanes(request.lanes, [&](unsigned lane) { all.push_back(request.address[lane]); });
  std::sort(all.begin(), all.end());
  return all;
}

// Returns how many threads of the request have the address that most of them have.
std::uint64_t most_on_one_address(const std::vector<std::uintptr_t>& addresses) {
  std::uint64_t most = 0, run = 0;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    run = i && addresses[i] == addresses[i - 1] ? run + 1 : 1;
    most = std::max(most, run);
  }
  return most;
}

void count_sectors(const std::vector<std::uintptr_t>& addresses, std::uint32_t bytes, Traffic& sums) {
  const auto needed = [](std::uint64_t size) { return (size + kSectorBytes - 1) / kSectorBytes; };
  std::uint64_t sectors = 0, aligned = 0, distinct = 0, run = 0;
  std::uintptr_t next_sector = 0, next_byte = 0;  // behind those that were counted
  for (const std::uintptr_t address : addresses) {
    const std::uintptr_t end = address + bytes, last = (end - 1) / kSectorBytes;
    const std::uintptr_t first = std::max(address / kSectorBytes, next_sector);
    if (last >= first) sectors += last - first + 1;
    next_sector = std::max(next_sector, last + 1);
    const std::uint64_t fresh = end - std::min(end, std::max(address, next_byte));
    if (address > next_byte) {
      aligned += needed(run);
      run = 0;
    }
    run += fresh;
    distinct += fresh;
    next_byte = std::max(next_byte, end);
  }
  sums.sectors += sectors;
  sums.least_sectors += needed(distinct);
  sums.aligned_sectors += aligned + needed(run);
}

// Returns the wavefronts of threads that access shared memory at once: the most words that one bank has to give. Threads
// that access the same word share it, but each atomic update of a word takes a wavefront of its own.
std::uint64_t wavefronts(const Request& request, std::uint32_t lanes, bool atomic) {
  std::vector<std::uintptr_t> words;
  words.reserve(2 * kWarpSize);
  for_lanes(lanes, [&](unsigned lane) {
    const std::uintptr_t first = request.address[lane] / kWordBytes, last = (request.address[lane] + request.bytes - 1) / kWordBytes;
    for (std::uintptr_t word = first; word <= last; ++word) words.push_back(word);
  });
  std::sort(words.begin(), words.end());
  if (!atomic) words.erase(std::unique(words.begin(), words.end()), words.end());
  std::array<std::uint64_t, kBanks> taken{};
  for (const std::uintptr_t word : words) ++taken[word % kBanks];
  return *std::max_element(taken.begin(), taken.end());
}

// A request of 8 bytes for each thread is served in two half warps, one of 16 bytes in four quarters.
void count_wavefronts(const Request& request, bool atomic, Traffic& sums) {
  const unsigned parts = request.bytes > 8 ? 4 : request.bytes > 4 ? 2 : 1, width = kWarpSize / parts;
  for (unsigned part = 0; part < parts; ++part) {
    const std::uint32_t all = parts == 1 ? ~0u : ((1u << width) - 1) << part * width;
    if (!(request.lanes & all)) continue;
    const std::uint64_t needed = wavefronts(request, request.lanes & all, atomic);
    sums.wavefronts += needed;
    sums.least_wavefronts += 1;
    sums.ways = std::max(sums.ways, needed);
  }
}

bool only_reads(Access access) { return access == Access::kLoad || access == Access::kAtomicLoad; }

Kind kind_of(Access access) {
  if (only_reads(access)) return Kind::kLoad;
  return access == Access::kStore ? Kind::kStore : Kind::kAtomic;
}

}  // namespace

void Traffic::add(const Request& request, Space space, Kind kind) {
  ++requests;
  threads += static_cast<std::uint64_t>(std::popcount(request.lanes));
  asked_bytes += static_cast<std::uint64_t>(std::popcount(request.lanes)) * request.bytes;
  const bool atomic = kind == Kind::kAtomic;
  if (space == Space::kShared) return count_wavefronts(request, atomic, *this);
  const std::vector<std::uintptr_t> addresses = sorted(request);
  count_sectors(addresses, request.bytes, *this);
  if (atomic) repeated += most_on_one_address(addresses) - 1;
}

void Traffic::add(const Traffic& other) {
  requests += other.requests;
  asked_bytes += other.asked_bytes;
  sectors += other.sectors;
  least_sectors += other.least_sectors;
  aligned_sectors += other.aligned_sectors;
  wavefronts += other.wavefronts;
  least_wavefronts += other.least_wavefronts;
  repeated += other.repeated;
  l1_sectors += other.l1_sectors;
  threads += other.threads;
  left_out += other.left_out;
  ways = std::max(ways, other.ways);
}

std::vector<std::uint64_t> spread(std::uint64_t count, std::uint64_t most) {
  std::vector<std::uint64_t> all;
  const std::uint64_t n = std::min(count, most);
  for (std::uint64_t i = 0; i < n; ++i) all.push_back(n > 1 ? i * (count - 1) / (n - 1) : 0);
  return all;
}

BlockRecord::BlockRecord(std::uint64_t number, std::uint64_t warps_of_block, const std::vector<std::uint64_t>& warps, std::size_t l1_bytes)
    : number(number), steps(warps.size()), slot_of_(warps_of_block, -1), warps_(warps.size()), l1_(l1_bytes) {
  for (std::size_t i = 0; i < warps.size(); ++i) slot_of_[warps[i]] = static_cast<int>(i);
}

unsigned BlockRecord::stream_of(const Instruction& instruction) {
  unsigned& guess = recent_[(reinterpret_cast<std::uintptr_t>(instruction.site) + 64 * static_cast<unsigned>(instruction.kind)) % recent_.size()];
  if (guess < instructions_.size() && instructions_[guess] == instruction) return guess;
  const auto [found, fresh] = stream_of_.try_emplace(instruction, static_cast<unsigned>(instructions_.size()));
  if (fresh) {
    instructions_.push_back(instruction);
    for (Warp& warp : warps_) warp.streams.emplace_back();
  }
  return guess = found->second;
}

void BlockRecord::put(Warp& warp, unsigned lane, unsigned stream, std::uintptr_t address, std::uint32_t bytes) {
  Stream& to = warp.streams[stream];
  const std::uint32_t k = to.next[lane]++;
  if (k >= kMostRequests) {
    ++left_out;
    ++to.left_out;
    return;
  }
  if (k >= to.requests.size()) to.requests.resize(k + 1);
  Request& request = to.requests[k];
  request.lanes |= 1u << lane;
  request.bytes = bytes;
  request.address[lane] = address;
}

// The emulator makes an atomic operation such as atomicAdd of an atomic load and a compare-and-swap that it may repeat. A
// GPU makes one update.
void BlockRecord::record(unsigned thread, std::uintptr_t address, std::size_t bytes, Space space, Access access, const void* site) {
  const int slot = slot_of_[thread / kWarpSize];
  if (slot < 0) return;
  Warp& warp = warps_[static_cast<std::size_t>(slot)];
  const unsigned lane = thread % kWarpSize;
  Last& last = warp.last[lane];
  if (access == Access::kAtomicCompare && last.address == address) {
    if (last.access == Access::kAtomicCompare) return;
    if (last.access == Access::kAtomicLoad) {
      Stream& load = warp.streams[last.stream];
      if (load.next[lane]-- <= load.requests.size()) load.requests[load.next[lane]].lanes &= ~(1u << lane);
    }
  }
  const unsigned stream = stream_of({site, space, kind_of(access)});
  // A GPU splits an access to a larger object into instructions of equal size.
  const auto piece = static_cast<std::uint32_t>(std::min<std::size_t>(bytes & -bytes, kWidest));
  for (std::size_t at = 0; at < bytes; at += piece) put(warp, lane, stream, address + at, piece);
  last = {address, access, stream};
}

void BlockRecord::step(unsigned thread, const void* site) {
  const int slot = slot_of_[thread / kWarpSize];
  if (slot >= 0) steps.add(static_cast<std::size_t>(slot), thread % kWarpSize, site);
}

void BlockRecord::touch(const Allocation& held) {
  if (held.start != last_start_) allocations[held.start] = held.bytes;
  last_start_ = held.start;
}

void BlockRecord::meet(unsigned first, std::uint32_t lanes) {
  const int slot = slot_of_[first / kWarpSize];
  if (slot < 0) return;
  if (lanes == ~0u) steps.meet(static_cast<std::size_t>(slot));
  for (Stream& stream : warps_[static_cast<std::size_t>(slot)].streams) {
    std::uint32_t most = 0;
    for_lanes(lanes, [&](unsigned lane) { most = std::max(most, stream.next[lane]); });
    for_lanes(lanes, [&](unsigned lane) { stream.next[lane] = most; });
  }
}

void BlockRecord::add_request(const Instruction& instruction, const Request& request) {
  Traffic& to = sums[instruction];
  to.add(request, instruction.space, instruction.kind);
  if (instruction.space == Space::kShared) return;
  std::uintptr_t before = 0;
  for (const std::uintptr_t address : sorted(request)) {
    for (std::uintptr_t sector = address / kSectorBytes; sector <= (address + request.bytes - 1) / kSectorBytes; ++sector) {
      if (sector == before) continue;
      before = sector;
      if (instruction.kind == Kind::kLoad && l1_.read(sector)) {
        ++to.l1_sectors;
      } else {
        sectors.insert(sector);
      }
    }
  }
}

// The k-th requests of all warps and instructions go through the cache before those behind them, as the warps of a GPU
// take turns.
void BlockRecord::settle() {
  steps.settle();
  std::size_t most = 0;
  for (const Warp& warp : warps_)
    for (const Stream& stream : warp.streams) most = std::max(most, stream.requests.size());
  for (std::size_t k = 0; k < most; ++k)
    for (const Warp& warp : warps_)
      for (std::size_t i = 0; i < warp.streams.size(); ++i) {
        const Stream& stream = warp.streams[i];
        if (k < stream.requests.size() && stream.requests[k].lanes) add_request(instructions_[i], stream.requests[k]);
      }
  for (Warp& warp : warps_)
    for (std::size_t i = 0; i < warp.streams.size(); ++i) {
      Stream& stream = warp.streams[i];
      if (stream.left_out) sums[instructions_[i]].left_out += stream.left_out;
      stream.left_out = 0;
      stream.requests.clear();
      stream.next.fill(0);
    }
}

}  // namespace emulator::profile
