// Answers what inline PTX asks about the running launch: how much shared memory a block has, and where an address is.
#include <dlfcn.h>

#include "core.h"
#include "emulator/ptx_scalar.h"
#include "emulator/scheduler.h"

namespace emulator {

std::uint32_t dynamic_shared_bytes() { return static_cast<std::uint32_t>(core->launch().shared_bytes); }
std::uint32_t total_shared_bytes() { return static_cast<std::uint32_t>(core->shared_bytes()); }

bool is_in_space(Space space, const void* address, SourcePlace here) {
  Dl_info info;
  const bool shared = is_shared(address), local = !shared && is_local(address);
  if (space == Space::kShared) return shared;
  if (space == Space::kLocal) return local;
  if (shared || local) return false;
  if (dladdr(address, &info)) lack(here.file, here.line, "the question whether the address of a variable is in constant memory");
  return space == Space::kGlobal;
}

}  // namespace emulator
