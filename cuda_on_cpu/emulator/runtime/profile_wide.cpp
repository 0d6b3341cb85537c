// Merges neighbouring accesses to shared memory.
#include "profile_wide.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <map>
#include <utility>

#include "emulator/profile.h"

namespace emulator::profile {
namespace {

// Returns the first lane that takes part.
unsigned first_lane(const Request& request) { return static_cast<unsigned>(std::countr_zero(request.lanes)); }

// Returns whether all lanes have one address.
bool uniform(const Request& request) {
  bool equal = true;
  for_lanes(request.lanes, [&](unsigned lane) { equal &= request.address[lane] == request.address[first_lane(request)]; });
  return equal;
}

// Returns whether the addresses of two requests differ by one number in all lanes. If all lanes load from one address, nvcc
// may load before it tests which threads need the value. So only some lanes must take part in both loads.
bool parallel(const Request& a, const Request& b, Kind kind) {
  if (a.bytes != b.bytes) return false;
  if (kind == Kind::kLoad && (a.lanes & b.lanes) && uniform(a) && uniform(b)) return true;
  if (a.lanes != b.lanes) return false;
  const std::uintptr_t difference = a.address[first_lane(a)] - b.address[first_lane(b)];
  bool equal = true;
  for_lanes(a.lanes, [&](unsigned lane) { equal &= a.address[lane] - b.address[lane] == difference; });
  return equal;
}

// What is known of the addresses at which runs begin: all have the same remainder modulo `modulus`.
struct Beginning {
  std::uintptr_t remainder = 0;
  std::uint32_t modulus = 0;  // 0 before the first address

  void add(std::uintptr_t address) {
    if (!modulus) {
      remainder = address % kWidest;
      modulus = kWidest;
    }
    while (address % modulus != remainder % modulus) modulus /= 2;
  }
};

}  // namespace

void WideAccesses::add(const Request& request, unsigned index, Kind kind) {
  end(kind == Kind::kLoad ? Kind::kStore : Kind::kLoad);
  const std::uintptr_t address = request.address[first_lane(request)];
  const auto family = std::find_if(families_.begin(), families_.end(), [&](const Family& each) { return parallel(each.first, request, kind); });
  if (family == families_.end()) {
    families_.push_back({request, kind, {{address, index, 0}}});
    return;
  }
  family->members.push_back({address, index, 0});
}

void WideAccesses::end() {
  for (Family& family : families_) end(family);
  families_.clear();
}

void WideAccesses::end(Kind kind) {
  if (!families_.empty() && families_.front().kind == kind) end();
}

// Splits a family into runs. If an address was accessed several times, each time is in another run.
void WideAccesses::end(Family& family) {
  std::vector<Member>& members = family.members;
  const std::uintptr_t start = members.front().address;
  const auto earlier = [](const Member& a, const Member& b) { return std::pair(a.time, a.address) < std::pair(b.time, b.address); };
  std::stable_sort(members.begin(), members.end(), [](const Member& a, const Member& b) { return a.address < b.address; });
  for (std::size_t i = 1; i < members.size(); ++i)
    if (members[i].address == members[i - 1].address) members[i].time = members[i - 1].time + 1;
  std::sort(members.begin(), members.end(), earlier);
  for (std::size_t i = 0; i < members.size(); ++i) {
    const bool follows = i && members[i].time == members[i - 1].time && members[i].address == members[i - 1].address + family.first.bytes;
    if (!follows) {
      runs_.push_back({family.first, {}});
      Request& first = runs_.back().first;
      for_lanes(first.lanes, [&](unsigned lane) { first.address[lane] += members[i].address - start; });
    }
    runs_.back().indices.push_back(members[i].index);
  }
}

void WideAccesses::take(std::vector<Run>& to) {
  end();
  std::move(runs_.begin(), runs_.end(), std::back_inserter(to));
  runs_.clear();
}

std::vector<WideAccesses::Run> Neighbours::split(const std::vector<WideAccesses::Run>& runs) {
  for (const WideAccesses::Run& run : runs)
    for (std::size_t i = 0; i < run.indices.size(); ++i) {
      ++times_[run.indices[i]];
      if (i && run.indices[i] != run.indices[i - 1]) ++together_[{run.indices[i - 1], run.indices[i]}];
    }
  const auto always = [&](unsigned a, unsigned b) {
    if (a == b) return true;
    const std::uint64_t together = together_[{a, b}];
    return together == times_[a] || together == times_[b];
  };
  std::vector<WideAccesses::Run> parts;
  for (const WideAccesses::Run& run : runs)
    for (std::size_t i = 0; i < run.indices.size(); ++i) {
      if (!i || !always(run.indices[i - 1], run.indices[i])) {
        parts.push_back({run.first, {}});
        for_lanes(run.first.lanes, [&](unsigned lane) { parts.back().first.address[lane] += i * run.first.bytes; });
      }
      parts.back().indices.push_back(run.indices[i]);
    }
  return parts;
}

void widen(const std::vector<WideAccesses::Run>& runs, const std::function<void(unsigned, const Request&)>& each, const std::function<void(unsigned, std::uint64_t)>& merged) {
  std::map<unsigned, Beginning> known;
  for (const WideAccesses::Run& run : runs)
    for_lanes(run.first.lanes, [&](unsigned lane) { known[run.indices.front()].add(run.first.address[lane]); });
  for (const WideAccesses::Run& run : runs) {
    const Beginning& at = known[run.indices.front()];
    const std::uint32_t bytes = run.first.bytes;
    const std::size_t length = run.indices.size() * bytes;
    for (std::size_t offset = 0, wide = bytes; offset < length; offset += wide) {
      wide = std::min<std::size_t>(kWidest, at.modulus);
      while (wide > bytes && ((at.remainder + offset) % wide || offset + wide > length)) wide /= 2;
      wide = std::max<std::size_t>(wide, bytes);
      Request request = run.first;
      request.bytes = static_cast<std::uint32_t>(wide);
      for_lanes(request.lanes, [&](unsigned lane) { request.address[lane] += offset; });
      each(run.indices[offset / bytes], request);
      for (std::size_t at = bytes; at < wide; at += bytes) merged(run.indices[(offset + at) / bytes], static_cast<std::uint64_t>(std::popcount(request.lanes)));
    }
  }
}

}  // namespace emulator::profile
