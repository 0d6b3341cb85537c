// Watch, the one object of the sanitizer. It has the state of the launch and the checks of every access.
#pragma once
#include <setjmp.h>

#include <tuple>
#include <unordered_map>

#include "sanitize_state.h"

namespace emulator::sanitize {

constexpr unsigned kMostThreads = 1024;

struct Range {
  const char* low = nullptr;
  std::size_t bytes = 0;
  bool holds(const char* p) const { return static_cast<std::size_t>(p - low) < bytes; }
};

struct Registers {  // that get the sums of products, and the last of these
  Range range;
  Reads last;
  std::uint32_t site;
};

struct Thread {
  jmp_buf end;
  Range stack;
  const void* waits_at = nullptr;
  bool returned = false;
  std::vector<std::uint64_t> known;  // by the reader: up to which number its reads have ended
  std::vector<Registers> registers;
};

// A read by an asynchronous unit that goes on until its end is waited for.
struct Reading {
  unsigned reader;
  std::uint64_t number, block;
  unsigned thread;
  std::uint32_t site;
};

// The accesses of a warp's lanes that its fences (fence.proxy.async) in a generation are after.
struct ProxyFence {
  std::uint32_t generation;
  std::uint16_t covered[kWarpSize];
};

// The clocks of a warp's lanes. `own` counts the warp operations of each lane. known[i][j] is the clock of lane j that
// lane i is ordered after.
struct Clocks {
  std::uint32_t generation = 0;
  std::uint16_t own[kWarpSize], known[kWarpSize][kWarpSize];
};

struct Block {
  std::uint64_t number = 0;
  std::uint32_t first = 1, generation = 1;  // the generation at its start, and now
  unsigned count = 0;                       // the number of its threads
  std::vector<Thread> threads;
  std::vector<Clocks> clocks;
  std::vector<std::pair<unsigned, Range>> ignored;  // warps, and memory of the emulator that each reads
  const void *first_site = nullptr, *other_site = nullptr;  // a barrier that threads have reached, and a different one
  unsigned other_thread = 0, arrived = 0;
  bool fenced = false;
  std::vector<std::vector<ProxyFence>> proxy_fences;  // by the warp, the oldest generation first
  std::vector<const char*> acquired;  // addresses of atomic updates, which may order this block after other blocks
};

struct Epoch {
  int launch;
  std::uint64_t block;
};

// A finding about a conflicting write, until the write is done. If the write does not change the value, it is dropped.
struct Pending {
  bool waits = false;
  const char* address;
  std::size_t bytes;
  char before[kGrain];
  Finding finding;
};

// A race of a plain read with an atomic update, until the end of the launch. If the reading thread updates the address
// itself, the read was the first guess of a compare-and-swap loop, and the finding is dropped.
struct Guess {
  const char* address;
  Finding finding;
};

class Watch {
 public:
  std::uint64_t order = 0;  // 0: forward, 1: reverse, else a seed
  bool checks = true, launch_aborted = false;
  std::map<std::string, std::vector<Array>> arrays;  // the key is the library
  std::vector<Finding> findings;
  std::vector<Record> launches;
  std::vector<std::uint32_t> block_order, turn_order, thread_order;

  // The state of the launch: sanitize_launch.cpp.
  void begin_call();
  void begin_launch(const Launch& launch);
  void static_memory(char* start, std::size_t bytes);
  char* dynamic_memory(std::size_t bytes, const char* behind);
  void end_launch();
  void begin_group();
  void begin_block(std::uint64_t number, unsigned threads);
  void resume_block(std::uint64_t number) { block_ = &blocks_[number]; }
  void release_grid();
  void order_blocks();
  void run_thread(void (*body)(void*), void* arguments);
  void switch_to(unsigned thread);
  void arrive(unsigned thread, const void* caller, bool at_barrier);
  void release_barrier(unsigned alive);
  void release_warp(unsigned first, std::uint32_t lanes);
  void ignore_memory(const void* start, std::size_t bytes);
  void never_reached(unsigned thread, bool barrier);
  void outside_mask(unsigned thread);
  void absent_lane(unsigned lane);
  void stuck(unsigned thread, SourcePlace place, const std::string& what);
  void trapped(const char* what, const void* caller);
  void failed(SourcePlace place, const std::string& what);
  void refused(const Launch& launch, const char* error);
  void accessed_too_early(std::size_t bytes, bool write, const void* caller);
  void end_call();

  // The checks of one access: sanitize_check.cpp.
  void touch(const char* p, std::size_t bytes, bool write, Manner manner, const void* caller);
  void misaligned(const char* p, std::size_t alignment, const char* what, const void* caller);
  void fence() { block_->fenced = true; }

  // What asynchronous units read and write: sanitize_units.cpp.
  const void* caller_of(SourcePlace place);
  const SourcePlace* place_of(std::uint32_t site) const;  // null for an address
  void fence_proxy();
  void unit_reads(const char* p, std::size_t bytes, SourcePlace place, Reads reads);
  void unit_writes(const char* p, std::size_t bytes, SourcePlace place, bool updates);
  void arrived(const char* p, std::size_t bytes);
  void unit_fills(const std::vector<std::uint32_t*>& registers, SourcePlace place, Reads reads);
  void reads_ended(Reads last);
  void gave(const void* barrier);
  void took(const void* barrier);

  // The findings: sanitize_findings.cpp.
  void settle();
  void drop_guesses(const char* p, std::size_t bytes);
  void keep_guesses();
  void blame(const char* p);
  void unwritten(const char* p, std::size_t elements, std::size_t bytes);

 private:
  std::vector<std::uint32_t> permutation(std::size_t count, std::uint64_t salt) const;
  int record(const Launch& launch);
  void drop_statics();
  void next_generation();
  void order_all();
  Clocks& clocks();

  bool shared(const Region& region) const { return region.place != Place::kDevice; }
  bool ordered(const Access& a, bool shared) const;
  bool published(std::uint64_t block, std::uint32_t generation) const;
  bool conflicts(const Access& a, std::uint8_t bytes, bool atomic, bool shared) const;
  Access now(std::uint8_t bytes, bool atomic, const void* caller);
  bool stray(const Region& region, const char* p, std::size_t bytes) const;
  bool known_elsewhere(const char* p) const;
  void miss(const char* p, std::size_t bytes, bool write, const void* caller);
  [[noreturn]] void end_thread();
  void grain(Region& region, std::size_t index, std::uint8_t bytes, bool write, Manner manner, const void* caller);
  std::size_t missing_bytes(const Region& region, const char* p, std::size_t bytes) const;
  bool unfilled(const Region& region, const char* p, std::size_t bytes) const;
  std::uint32_t fills_count_from(const Region& region) const { return shared(region) ? block_->first : 1; }
  void sync(const char* p);
  bool fenced(const Access& write) const;
  unsigned reader(unsigned unit);
  void share(const std::vector<Thread*>& threads);
  void forget_readings();
  void check_readings(const Region& region, const char* p, std::size_t bytes, const void* caller);
  void check_arriving(const Region& region, const char* p, std::size_t bytes, bool write, const void* caller);
  void check_registers(const char* p, std::size_t bytes, bool write, const void* caller);

  const Epoch& epoch(const Access& a) const { return epochs_[a.generation - first_generation_]; }
  std::uint32_t site(const void* caller) const { return static_cast<std::uint32_t>(static_cast<const char*>(caller) - library_.low); }
  Finding finding(Kind kind, const void* caller) const;
  void keep(Kind kind, const void* caller, const Region& region, const char* p, std::size_t bytes);
  void keep(const Finding& finding);
  void locate(Finding& finding, const Region& region, const char* p, std::size_t bytes) const;
  const Array* array_at(std::size_t offset, bool nearest) const;
  void race(const char* p, bool write, bool atomic, const Access& other, bool other_writes, const Region& region, const void* caller);
  Where where(const Access& a, bool writes) const;

  std::vector<Epoch> epochs_;
  std::uint32_t first_generation_ = 1, generation_ = 0, launch_first_ = 1, group_first_ = 1;
  int launch_ = -1, refused_ = -1;
  std::string refusal_;
  Range library_, host_stack_, built_in_;
  const std::vector<Array>* named_ = nullptr;  // the library's __shared__ variables
  std::vector<Region*> static_, dynamic_;
  std::unordered_map<std::uint64_t, Block> blocks_;  // one block, or all of a group
  bool grouped_ = false, clustered_ = false;         // whether groups of blocks run at once, and whether these are clusters
  Block* block_ = nullptr;
  unsigned thread_ = 0;
  std::unordered_map<const char*, std::unordered_map<std::uint64_t, std::uint32_t>> releases_;
  std::vector<SourcePlace> places_;
  std::map<std::pair<std::uint64_t, unsigned>, unsigned> readers_;  // the number of each unit of a block that reads
  std::unordered_map<std::uint64_t, std::vector<Reading>> readings_;  // by the address
  std::unordered_map<std::uint64_t, Where> arriving_;  // by the address: the bulk copies that write
  std::unordered_map<const void*, std::vector<std::uint64_t>> given_;  // what threads knew which arrived at a barrier
  Pending pending_;
  std::vector<Guess> guesses_;
  std::map<std::tuple<Kind, std::uint32_t, std::uint32_t, const Region*, std::string>, std::size_t> seen_;
};

Watch& watch();

}  // namespace emulator::sanitize
