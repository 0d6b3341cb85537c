// Finds a kernel's library in memory, and its static shared memory: the thread-local memory on the calling OS thread.
#include <link.h>

#include <algorithm>

#include "core.h"

extern "C" void* __tls_get_addr(void* module_and_offset);

namespace emulator {
namespace {

struct Wanted {
  std::uintptr_t code;
  Library found;
};

int look(dl_phdr_info* info, std::size_t, void* argument) {
  auto* wanted = static_cast<Wanted*>(argument);
  bool inside = false;
  std::size_t bytes = 0;
  Library library{~std::uintptr_t{0}, 0, {}};
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    const auto low = info->dlpi_addr + segment.p_vaddr;
    inside |= segment.p_type == PT_LOAD && wanted->code >= low && wanted->code < low + segment.p_memsz;
    if (segment.p_type == PT_TLS) bytes = segment.p_memsz;
    if (segment.p_type == PT_LOAD) library = {std::min(library.low, low), std::max(library.high, low + segment.p_memsz), {}};
  }
  if (inside && bytes) {
    std::size_t module_and_offset[2] = {info->dlpi_tls_modid, 0};
    library.shared = {static_cast<char*>(__tls_get_addr(module_and_offset)), bytes};
  }
  if (inside) wanted->found = library;
  return inside;
}

}  // namespace

Library library_of(const void* code) {
  Wanted wanted{reinterpret_cast<std::uintptr_t>(code), {}};
  dl_iterate_phdr(&look, &wanted);
  return wanted.found;
}

}  // namespace emulator
