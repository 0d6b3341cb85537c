// A model of a cache, for the command `profile`: lines of 128 bytes with 4 sectors each, in sets of 4 lines. A set gives up
// the line that was used least recently. NVIDIA does not publish the policies of its caches.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace emulator::profile {

class Cache {
 public:
  explicit Cache(std::size_t bytes) : sets_(bytes / (kLineBytes * kWays)) {}

  enum class Found : std::uint8_t { kNot, kOnItsWay, kThere };

  // Reads a sector, given by its number, and returns whether the cache has it. Afterwards it has. In the turn in which it
  // was first read, it is on its way. Turns are counted from 1.
  Found read(std::uintptr_t sector, std::uint64_t turn) {
    if (sets_.empty()) return Found::kNot;
    const std::uintptr_t number = sector / kSectors + 1;  // 0 is an empty line
    // Caches spread lines over their sets by a hash. Else the rows of a matrix could all have the same set.
    Set& set = sets_[(number * 0x9E3779B97F4A7C15u >> 32) % sets_.size()];
    auto line = std::find_if(set.begin(), set.end(), [&](const Line& each) { return each.number == number; });
    if (line == set.end()) *--line = {number, {}};
    std::uint64_t& read = line->read[sector % kSectors];
    const Found found = !read ? Found::kNot : read == turn ? Found::kOnItsWay : Found::kThere;
    if (!read) read = turn;
    std::rotate(set.begin(), line, line + 1);  // the most recently used first
    return found;
  }

 private:
  static constexpr std::size_t kLineBytes = 128, kSectors = 4, kWays = 4;
  struct Line {
    std::uintptr_t number = 0;
    std::array<std::uint64_t, kSectors> read{};  // the turn in which each sector was first read, or 0
  };
  using Set = std::array<Line, kWays>;
  std::vector<Set> sets_;
};

}  // namespace emulator::profile
