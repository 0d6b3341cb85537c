// Finds the static shared memory of a library: the library's thread-local memory on the calling OS thread.
#include <link.h>

#include "core.h"

extern "C" void* __tls_get_addr(void* module_and_offset);

namespace emulator {
namespace {

struct Wanted {
  std::uintptr_t code;
  SharedMemory found;
};

int look(dl_phdr_info* info, std::size_t, void* argument) {
  auto* wanted = static_cast<Wanted*>(argument);
  bool inside = false;
  std::size_t bytes = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    const auto low = info->dlpi_addr + segment.p_vaddr;
    inside |= segment.p_type == PT_LOAD && wanted->code >= low && wanted->code < low + segment.p_memsz;
    if (segment.p_type == PT_TLS) bytes = segment.p_memsz;
  }
  if (inside && bytes) {
    std::size_t module_and_offset[2] = {info->dlpi_tls_modid, 0};
    wanted->found = {static_cast<char*>(__tls_get_addr(module_and_offset)), bytes};
  }
  return inside;
}

}  // namespace

SharedMemory static_memory_of(const void* code) {
  Wanted wanted{reinterpret_cast<std::uintptr_t>(code), {}};
  dl_iterate_phdr(&look, &wanted);
  return wanted.found;
}

}  // namespace emulator
