// Keeps the counts of each launch for a profile, and writes them as JSON. Counted code reports its accesses: see
// counting/count_accesses.cpp.
#include "emulator/profile.h"

#include <atomic>
#include <deque>
#include <string>

#include "emulator/memory.h"

namespace emulator {

// Returns whether the address is in the shared memory of the block that runs on this OS thread.
bool is_shared(const void* address);

namespace profile {

bool on = false;

namespace {

using Count = std::atomic<std::uint64_t>;

struct Counts {
  std::string kernel;
  dim3 grid, block;
  std::size_t dynamic_bytes;
  Count barriers{0}, warp_operations{0}, global_read{0}, global_written{0}, shared_read{0}, shared_written{0};
};

std::deque<Counts> counted;  // a deque, because atomics cannot move

void add(Count& count, std::uint64_t more = 1) { count.fetch_add(more, std::memory_order_relaxed); }

void put(std::string& text, const char* name, std::uint64_t value) {
  text += std::string(", \"") + name + "\": " + std::to_string(value);
}

void put(std::string& text, const char* name, const dim3& size) {
  text += std::string(", \"") + name + "\": [" + std::to_string(size.x) + ", " + std::to_string(size.y) + ", " + std::to_string(size.z) + "]";
}

}  // namespace

void launched(const Launch& launch) { counted.emplace_back(launch.kernel, launch.grid, launch.block, launch.shared_bytes); }
void met_at_barrier() { add(counted.back().barriers); }
void met_in_warp() { add(counted.back().warp_operations); }

// Counts one access. An access to a kernel's local variable is in neither device nor shared memory and is not counted.
void touched(const void* address, std::size_t bytes, bool write) {
  if (!on || counted.empty()) return;
  Counts& now = counted.back();
  if (is_shared(address)) {
    add(write ? now.shared_written : now.shared_read, bytes);
  } else if (is_device(address)) {
    add(write ? now.global_written : now.global_read, bytes);
  }
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
  static std::string text;
  text = "[";
  for (const Counts& each : counted) {
    text += text.size() > 1 ? ", {" : "{";
    text += "\"kernel\": \"" + each.kernel + "\"";  // the name is a C++ name, so it contains no quotes
    put(text, "grid", each.grid);
    put(text, "block", each.block);
    put(text, "dynamic_shared_bytes", each.dynamic_bytes);
    put(text, "barriers", each.barriers);
    put(text, "warp_operations", each.warp_operations);
    put(text, "global_read", each.global_read);
    put(text, "global_written", each.global_written);
    put(text, "shared_read", each.shared_read);
    put(text, "shared_written", each.shared_written);
    text += "}";
  }
  text += "]";
  on = false;
  return text.c_str();
}
