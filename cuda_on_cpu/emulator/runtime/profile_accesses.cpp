// Counts the sectors and bank conflicts of each request.
#include "profile_accesses.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace emulator::profile {
namespace {

constexpr std::uintptr_t kSectorBytes = 32, kWordBytes = 4, kBanks = 32;

// Returns the sorted addresses of the request's threads.
std::vector<std::uintptr_t> sorted_addresses(const Request& request) {
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
// that access the same word share it, unless `each` thread needs it for itself.
std::uint64_t wavefronts(const Request& request, std::uint32_t lanes, bool each) {
  std::vector<std::uintptr_t> words;
  words.reserve(2 * kWarpSize);
  for_lanes(lanes, [&](unsigned lane) {
    const std::uintptr_t first = request.address[lane] / kWordBytes, last = (request.address[lane] + request.bytes - 1) / kWordBytes;
    for (std::uintptr_t word = first; word <= last; ++word) words.push_back(word);
  });
  std::sort(words.begin(), words.end());
  if (!each) words.erase(std::unique(words.begin(), words.end()), words.end());
  std::array<std::uint64_t, kBanks> taken{};
  for (const std::uintptr_t word : words) ++taken[word % kBanks];
  return *std::max_element(taken.begin(), taken.end());
}

// Returns whether all threads that take part have the same address as the thread whose lane differs in the bit `bit`, if
// that takes part.
bool equal_pairs(const Request& request, std::uint32_t lanes, unsigned bit) {
  bool equal = true;
  for_lanes(lanes, [&](unsigned lane) {
    const unsigned other = lane ^ bit;
    if (lanes >> other & 1) equal &= request.address[lane] == request.address[other];
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

// Returns the threads of each part of a request of `lanes` that is served at once. A request of 8 bytes for each thread is
// served in two half warps, one of 16 bytes in four quarters. A load of which neighbours, or threads two lanes apart, have
// equal addresses returns half as much, and takes half as many parts:
// https://forums.developer.nvidia.com/t/unexpected-shared-memory-bank-conflict/77228/2
std::vector<std::uint32_t> parts_of(const Request& request, std::uint32_t lanes, bool load) {
  unsigned count = request.bytes > 8 ? 4 : request.bytes > 4 ? 2 : 1;
  if (load && count > 1 && (equal_pairs(request, lanes, 1) || equal_pairs(request, lanes, 2))) count /= 2;
  const unsigned width = kWarpSize / count;
  std::vector<std::uint32_t> parts;
  for (unsigned part = 0; part < count; ++part) {
    const std::uint32_t all = count == 1 ? ~0u : ((1u << width) - 1) << part * width;
    if (lanes & all) parts.push_back(lanes & all);
  }
  return parts;
}

// Returns those of the threads in `lanes` whose compare-and-swap succeeds if all try at once: the first thread of each bank
// in each half warp, and of these the first of each address.
std::uint32_t successful(const Request& request, std::uint32_t lanes) {
  std::vector<std::uintptr_t> addresses;
  std::uint32_t all = 0;
  for (const std::uint32_t part : parts_of(request, lanes, false)) {
    std::uint32_t banks = 0;
    for_lanes(part, [&](unsigned lane) {
      const std::uint32_t bank = 1u << request.address[lane] / kWordBytes % kBanks;
      if (banks & bank || std::find(addresses.begin(), addresses.end(), request.address[lane]) != addresses.end()) return;
      banks |= bank;
      addresses.push_back(request.address[lane]);
      all |= 1u << lane;
    });
  }
  return all;
}

// Counts an update in a loop of compare-and-swaps: in each step, the threads that have not succeeded load their values, and
// then try. A try takes two wavefronts. In 8 bytes, it takes two and one more for each half warp in which threads succeed.
// This rule, and those for other updates in `count_wavefronts`, were read off the counts of Nsight Compute on an H200.
void count_loop(const Request& request, Traffic& sums) {
  const auto take = [&](std::uint32_t done) { return request.bytes > 4 ? 2 + parts_of(request, done, false).size() : 2; };
  std::uint64_t all = 0;
  for (std::uint32_t left = request.lanes; left;) {
    for (const std::uint32_t part : parts_of(request, left, true)) {
      const std::uint64_t needed = wavefronts(request, part, false);
      all += needed;
      sums.conflicts += needed - 1;
      sums.ways = std::max(sums.ways, needed);
    }
    const std::uint32_t done = successful(request, left);
    all += take(done);
    left &= ~done;
  }
  sums.wavefronts += all;
  sums.least_wavefronts += parts_of(request, request.lanes, true).size() + take(request.lanes);
}

// Counts the wavefronts of a request. An update of shared memory takes one for each thread, unless it adds the number of
// threads that have the same address. A compare-and-swap takes two.
void count_wavefronts(const Request& request, Kind kind, Update update, Traffic& sums) {
  const bool counts = kind == Kind::kAtomic && update == Update::kCount;
  if (kind == Kind::kAtomic && !counts) sums.repeated += most_on_one_address(sorted_addresses(request)) - 1;
  if (kind == Kind::kAtomic && update == Update::kLoop) return count_loop(request, sums);
  const std::uint64_t times = kind == Kind::kAtomic && update == Update::kCompare ? 2 : 1;
  for (const std::uint32_t part : parts_of(request, request.lanes, kind == Kind::kLoad)) {
    const std::uint64_t needed = wavefronts(request, part, kind == Kind::kAtomic && !counts);
    sums.wavefronts += times * needed;
    sums.least_wavefronts += times;
    sums.conflicts += needed - 1;
    if (needed <= sums.ways) continue;
    sums.ways = needed;
    sums.distance = least_distance(request);
  }
}

}  // namespace

void Traffic::add(const Request& request, Space space, Kind kind, Update update) {
  ++requests;
  threads += static_cast<std::uint64_t>(std::popcount(request.lanes));
  asked_bytes += static_cast<std::uint64_t>(std::popcount(request.lanes)) * request.bytes;
  if (space == Space::kShared) return count_wavefronts(request, kind, update, *this);
  const std::vector<std::uintptr_t> addresses = sorted_addresses(request);
  count_sectors(addresses, request.bytes, *this);
  if (kind != Kind::kAtomic) return;
  sectors += sectors_of_waiting(addresses);
  repeated += most_on_one_address(addresses) - 1;
}

void Traffic::add(const Traffic& other) {
  for (const auto& [name, sum] : kSums) this->*sum += other.*sum;
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
