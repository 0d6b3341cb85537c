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

  // Reads a sector, given by its number. Returns whether the cache has it. Afterwards it has.
  bool read(std::uintptr_t sector) {
    if (sets_.empty()) return false;
    const std::uintptr_t number = sector / kSectors + 1;  // 0 is an empty line
    const auto bit = static_cast<std::uint8_t>(1u << sector % kSectors);
    // Caches spread lines over their sets by a hash. Else the rows of a matrix could all have the same set.
    Set& set = sets_[(number * 0x9E3779B97F4A7C15u >> 32) % sets_.size()];
    auto line = std::find_if(set.begin(), set.end(), [&](const Line& each) { return each.number == number; });
    if (line == set.end()) *--line = {number, 0};
    const bool hit = line->sectors & bit;
    line->sectors |= bit;
    std::rotate(set.begin(), line, line + 1);  // the most recently used first
    return hit;
  }

 private:
  static constexpr std::size_t kLineBytes = 128, kSectors = 4, kWays = 4;
  struct Line {
    std::uintptr_t number = 0;
    std::uint8_t sectors = 0;
  };
  using Set = std::array<Line, kWays>;
  std::vector<Set> sets_;
};

}  // namespace emulator::profile
