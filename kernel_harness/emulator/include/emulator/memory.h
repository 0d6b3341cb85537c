// Which addresses are device memory. The emulated device's memory is ordinary memory of this process, kept in a
// registry so that a kernel that is handed a host pointer fails as it would on a GPU.
#pragma once
#include <cstddef>

namespace emulator {

// Memory for the device, filled with 0xFF (a NaN in every floating type) so that reading before writing shows.
void* allocate(std::size_t bytes);
// False where the address is not the start of a live allocation.
bool release(void* address);

// Memory somebody else owns, to be treated as the device's until forgotten.
void adopt(const void* address, std::size_t bytes);
void forget(const void* address);

bool is_device(const void* address);

}  // namespace emulator
