// The registry of device memory. The memory of the emulated device is ordinary memory of this process. The registry
// tells device pointers from host pointers, so that a launch with a host pointer fails as on a GPU.
#pragma once
#include <cstddef>

namespace emulator {

// In a dry run (`emulator_begin_dry_run`), new device memory has addresses and no bytes. Code that needs its values calls
// `end_dry_run`, which ends the process.
bool is_dry();
[[noreturn]] void end_dry_run();

// Allocates device memory. It is filled with 0xFF, which is NaN in every floating type, so that a read before any write
// shows in the output.
void* allocate(std::size_t bytes);
// Frees device memory. Returns false if the address is not the start of a live allocation.
bool release(void* address);

// `adopt` makes memory of another owner device memory, until `forget` is called.
void adopt(const void* address, std::size_t bytes, bool pinned = false);
void forget(const void* address);

bool is_device(const void* address);
bool is_pinned(const void* address);  // whether it is memory of the host, to which copies may be late
void pin(const void* address);

// Reports to the sanitizer that a library's work wrote to device memory.
void written_by_library(const void* address, std::size_t bytes);

}  // namespace emulator
