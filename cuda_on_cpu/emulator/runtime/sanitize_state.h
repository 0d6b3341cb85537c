// The types of the sanitizer's records. A Grain has the last accesses to four bytes of memory that kernels can reach. A
// Finding has everything that its report needs. Only the sanitizer's own sources include this header.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "emulator/sanitize.h"

namespace emulator::sanitize {

constexpr std::size_t kGrain = 4;            // bytes that share a record, in which a mask distinguishes them
constexpr std::size_t kZone = 1 << 20;       // unused memory on either side of every allocation
// The bits of Access::thread. An asynchronous unit made an access with kUnit for the thread.
constexpr std::uint16_t kAtomic = 1u << 15, kUnit = 1u << 14, kThreadBits = kUnit - 1;

// An access to memory. Its time is a generation: a new generation starts with each block, and with each barrier that
// the block passes.
struct Access {
  std::uint32_t generation = 0;  // 0: there was no access
  std::uint32_t site : 28 = 0;   // the return address, relative to the kernel's library
  std::uint32_t bytes : 4 = 0;   // a mask of the accessed bytes among the four
  std::uint16_t thread = 0;
  std::uint16_t clock = 0;  // how often the thread had synchronised with its warp in this generation
};

// The accesses to four bytes: the last write, the last read, and `elsewhere`, the last read that is not ordered with
// the last read.
struct Grain {
  Access write, read, elsewhere;
  std::uint32_t filled_since = 0;  // the generation in which `filled` began to count
  std::uint8_t filled = 0;         // a mask of the bytes written since then
};

enum class Place { kDevice, kStatic, kDynamic };

struct Region {
  const char* base = nullptr;
  std::size_t bytes = 0;
  Place place = Place::kDevice;
  bool owned = false;   // allocated by the emulator
  bool zoned = false;   // has unused memory of kZone bytes on either side
  bool filled = false;  // all bytes were written before any kernel ran
  bool live = true;
  bool read_only = false;
  std::string name;
  Grain* grains = nullptr;
  int written_by = -1;  // the index of the launch that wrote to it last, or -1

  bool holds(const char* p) const { return static_cast<std::size_t>(p - base) < bytes; }
};

// A __shared__ variable in a library's thread-local memory. A variable of the emulator or the compiler has no name.
struct Array {
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
  kSkippedBarrier,  // some threads had returned. A finding only if the kernel has no return before the barrier
  kDivergentWarp,
  kInputWritten,
  kLaunchFailed,
  kUnwritten,
  kOrderDependent,
  kMisaligned,
  kTrap,        // an assertion that fails, or __trap()
  kAbsentLane,  // a shuffle reads from a lane that does not take part in it
  kNoProxyFence,  // a unit reads what a thread wrote, without fence.proxy.async in between
  kStillRead,     // a write to memory that a unit still reads, because the end of the read was not waited for
  kNoWait,        // a use of registers that get the sums of a product before wgmma.wait_group
  kFailed,        // an instruction that stops a GPU
  kHang,          // a thread waits forever for what is not there
  kTooEarly,    // host code uses pinned memory before the work of a stream that uses it is done
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
  std::string array;             // the name of the __shared__ variable, or empty
  std::size_t buffer_bytes = 0;  // the size of the region or the array
  std::int64_t offset = 0;       // the offset of the access from the start of the region or the array
  std::size_t size = 0;
  std::string detail;
  std::uint64_t count = 1;
};

struct Record {  // a launch
  std::string kernel, file, library;
  int line;
  dim3 grid, block;
  std::uint64_t ticket = 0;  // its place in the order of launches
};

class Memory {
 public:
  Region* add(const Region& what);
  void drop(const void* base);
  Region* at(const char* p);
  const Region* nearest(const char* p) const;
  void forget_dead();
  void ready(Region& region);  // allocates the records of the region

 private:
  std::mutex mutex_;
  std::map<const char*, Region*> regions_;
  std::vector<Region*> dead_;
  Region* recent_ = nullptr;
};

// How the running thread accesses memory.
enum class Manner { kPlain, kVolatile, kAtomic, kUnit };  // kUnit: an asynchronous unit, for the thread

extern thread_local bool inside;  // whether a kernel runs on this OS thread
void touch(const void* address, std::size_t bytes, bool write, Manner manner, const void* caller);
void fence();

Memory& memory();
void* take_zoned(std::size_t bytes);
void* take_zoned_behind(std::size_t bytes, const char* address);  // see dynamic_memory
void free_zoned(void* address, std::size_t bytes);
void* take_for_host(std::size_t bytes);
void free_for_host(void* address);
bool is_for_host(const void* address);

}  // namespace emulator::sanitize
