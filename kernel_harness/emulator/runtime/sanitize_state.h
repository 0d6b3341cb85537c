// What the sanitizer remembers: of every four bytes that kernels can reach, who touched them last; of every
// finding, what a person needs to mend it. Shared by the sanitizer's own sources, and by nothing else.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "emulator/sanitize.h"

namespace emulator::sanitize {

constexpr std::size_t kGrain = 4;            // bytes that share a record; masks tell them apart
constexpr std::size_t kZone = 1 << 20;       // unused memory on either side of every allocation
constexpr std::uint16_t kAtomic = 1u << 15, kThreadBits = kAtomic - 1;  // of Access::thread

// Time is counted in generations: a new one for every block, and for every barrier it passes.
struct Access {
  std::uint32_t generation = 0;  // 0: never
  std::uint32_t site : 28 = 0;   // where in the kernel's library
  std::uint32_t bytes : 4 = 0;   // which of the four
  std::uint16_t thread = 0;
  std::uint16_t clock = 0;  // how often the thread had met its warp in this generation
};

// The last write; the last read; and the last read that nothing orders with that one.
struct Grain {
  Access write, read, elsewhere;
  std::uint32_t filled_since = 0;  // the generation from which `filled` counts
  std::uint8_t filled = 0;
};

enum class Place { kDevice, kStatic, kDynamic };

struct Region {
  const char* base = nullptr;
  std::size_t bytes = 0;
  Place place = Place::kDevice;
  bool owned = false;   // allocated here
  bool zoned = false;   // whether missing it by less than kZone touches nothing else
  bool filled = false;  // whether all of it was written before any kernel ran
  bool live = true;
  bool read_only = false;
  std::string name;
  Grain* grains = nullptr;
  int written_by = -1;  // the launch that wrote to it last

  bool holds(const char* p) const { return static_cast<std::size_t>(p - base) < bytes; }
};

struct Array {  // a __shared__ variable (or, without a name, one of the emulator's) in a library's thread-local memory
  std::size_t offset, bytes;
  std::string name;
};

enum class Kind {
  kOutOfBoundsRead,
  kOutOfBoundsWrite,
  kUseAfterFree,
  kUninitialized,
  kRace,
  kDivergentBarrier,
  kSkippedBarrier,  // by threads that had returned: a finding only where none of them could return early
  kDivergentWarp,
  kInputWritten,
  kLaunchFailed,
  kUnwritten,
  kOrderDependent,
};

struct Where {
  std::uint64_t block = 0;
  unsigned thread = 0;
  std::uint32_t site = 0;
  bool write = false, known = false;
};

struct Finding {
  Kind kind;
  int launch;
  Where here, there;
  const Region* region = nullptr;
  std::string array;             // the shared variable, where it has a name
  std::size_t buffer_bytes = 0;  // of the region or the array
  std::int64_t offset = 0;       // from its start
  std::size_t size = 0;
  std::string detail;
  std::uint64_t count = 1;
};

struct Record {  // of a launch
  std::string kernel, file, library;
  int line;
  dim3 grid, block;
};

class Memory {
 public:
  Region* add(const Region& what);
  void drop(const void* base);
  Region* at(const char* p);
  const Region* nearest(const char* p) const;
  void forget_dead();
  void ready(Region& region);  // makes room for its records

 private:
  std::mutex mutex_;
  std::map<const char*, Region*> regions_;
  std::vector<Region*> dead_;
  Region* recent_ = nullptr;
};

// How the running thread touches memory.
enum class Manner { kPlain, kVolatile, kAtomic };

extern thread_local bool inside;  // whether what runs on this OS thread is a kernel
void touch(const void* address, std::size_t bytes, bool write, Manner manner, const void* caller);
void fence();

Memory& memory();
void* take_zoned(std::size_t bytes);
void free_zoned(void* address, std::size_t bytes);
void* take_for_host(std::size_t bytes);
void free_for_host(void* address);
bool is_for_host(const void* address);

}  // namespace emulator::sanitize
