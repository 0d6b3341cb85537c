// Counts the sectors and bank conflicts of each request.
#include "profile_accesses.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace emulator::profile {
namespace {

constexpr std::uintptr_t kWordBytes = 4, kBanks = 32;

// Returns the sorted addresses of the threads in `lanes`.
std::vector<std::uintptr_t> sorted_addresses(const Request& request, std::uint32_t lanes) {
  std::vector<std::uintptr_t> all;
  all.reserve(kWarpSize);
  for_lanes(lanes, [&](unsigned lane) { all.push_back(request.address[lane]); });
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

// Returns how many sectors the atomic updates touch that wait for another update of the same address: the second updates
// of all addresses go together, then the third ones, and so on. The addresses are sorted.
std::uint64_t sectors_of_waiting(std::vector<std::uintptr_t> addresses) {
  std::uint64_t sectors = 0;
  while (!addresses.empty()) {
    std::vector<std::uintptr_t> waiting;
    std::uintptr_t before = 0;
    for (std::size_t i = 1; i < addresses.size(); ++i) {
      if (addresses[i] != addresses[i - 1]) continue;
      const bool second = waiting.empty() || waiting.back() != addresses[i];
      waiting.push_back(addresses[i]);
      if (second && addresses[i] / kSectorBytes != before) ++sectors;
      before = addresses[i] / kSectorBytes;
    }
    addresses = std::move(waiting);
  }
  return sectors;
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

// Returns whether all threads that take part have the same address as the thread whose lane differs in the bit `bit`, if
// that takes part.
bool equal_pairs(const Request& request, unsigned bit) {
  bool equal = true;
  for_lanes(request.lanes, [&](unsigned lane) {
    const unsigned other = lane ^ bit;
    if (request.lanes >> other & 1) equal &= request.address[lane] == request.address[other];
  });
  return equal;
}

// Returns the least distance in bytes between different addresses of neighbouring threads that take part, or 0.
std::uint64_t least_distance(const Request& request) {
  std::uint64_t least = 0;
  for (unsigned lane = 0; lane + 1 < kWarpSize; ++lane) {
    if ((request.lanes >> lane & 3) != 3) continue;
    const std::uintptr_t a = request.address[lane], b = request.address[lane + 1];
    const std::uint64_t apart = a < b ? b - a : a - b;
    if (apart && (!least || apart < least)) least = apart;
  }
  return least;
}

// A request of 8 bytes for each thread is served in two half warps, one of 16 bytes in four quarters. A load of which
// neighbours, or threads two lanes apart, have equal addresses returns half as much, and takes half as many parts:
// https://forums.developer.nvidia.com/t/unexpected-shared-memory-bank-conflict/77228/2
void count_wavefronts(const Request& request, Kind kind, Traffic& sums) {
  unsigned parts = request.bytes > 8 ? 4 : request.bytes > 4 ? 2 : 1;
  if (kind == Kind::kLoad && parts > 1 && (equal_pairs(request, 1) || equal_pairs(request, 2))) parts /= 2;
  const unsigned width = kWarpSize / parts;
  for (unsigned part = 0; part < parts; ++part) {
    const std::uint32_t all = parts == 1 ? ~0u : ((1u << width) - 1) << part * width;
    const std::uint32_t lanes = request.lanes & all;
    if (!lanes) continue;
    const std::uint64_t needed = wavefronts(request, lanes, kind == Kind::kAtomic);
    sums.wavefronts += needed;
    sums.least_wavefronts += 1;
    if (kind == Kind::kAtomic) sums.repeated += most_on_one_address(sorted_addresses(request, lanes)) - 1;
    if (needed <= sums.ways) continue;
    sums.ways = needed;
    sums.distance = least_distance(request);
  }
}

}  // namespace

std::vector<std::uintptr_t> sorted(const Request& request) { return sorted_addresses(request, request.lanes); }

void Traffic::add(const Request& request, Space space, Kind kind) {
  ++requests;
  threads += static_cast<std::uint64_t>(std::popcount(request.lanes));
  asked_bytes += static_cast<std::uint64_t>(std::popcount(request.lanes)) * request.bytes;
  if (space == Space::kShared) return count_wavefronts(request, kind, *this);
  const std::vector<std::uintptr_t> addresses = sorted(request);
  count_sectors(addresses, request.bytes, *this);
  if (kind != Kind::kAtomic) return;
  sectors += sectors_of_waiting(addresses);
  repeated += most_on_one_address(addresses) - 1;
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
  delayed += other.delayed;
  after_read += other.after_read;
  threads += other.threads;
  merged += other.merged;
  left_out += other.left_out;
  if (other.ways <= ways) return;
  ways = other.ways;
  distance = other.distance;
}

std::vector<std::uint64_t> spread(std::uint64_t count, std::uint64_t most) {
  std::vector<std::uint64_t> all;
  const std::uint64_t n = std::min(count, most);
  for (std::uint64_t i = 0; i < n; ++i) all.push_back(n > 1 ? i * (count - 1) / (n - 1) : 0);
  return all;
}

}  // namespace emulator::profile
