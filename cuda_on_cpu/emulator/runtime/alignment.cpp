// Ends a launch whose kernel accesses memory through a misaligned pointer, as a GPU does. g++ (-fsanitize=alignment)
// calls this code at such an access.
#include <algorithm>
#include <cstdint>
#include <string>

#include "core.h"
#include "emulator/host.h"
#include "emulator/memory.h"
#include "emulator/sanitize.h"

namespace {

// The layout of g++'s descriptions of an access. https://github.com/gcc-mirror/gcc/blob/master/libsanitizer/ubsan
struct Type {
  std::uint16_t kind, info;
  char name[1];  // in quotes
};
struct Access {
  struct {
    const char* file;
    std::uint32_t line, column;
  } place;
  const Type* type;
  std::uint8_t log_alignment, kind;
};

}  // namespace

extern "C" void __ubsan_handle_type_mismatch_v1(const Access* access, const void* address) {
  using namespace emulator;
  // A GPU keeps a thread's own variables in registers, so only memory that threads share counts. A reference counts as
  // an access, because g++ reports only the first use of an address.
  if (!core || !core->runs() || !(core->holds(address) || is_device(address))) return;
  // The longest access of a thread has 16 bytes, so a larger alignment of a type is not needed to access its members.
  const std::size_t alignment = std::min(std::size_t{1} << access->log_alignment, std::size_t{16});
  if (reinterpret_cast<std::uintptr_t>(address) % alignment == 0) return;
  const std::string where = "at an address that is not a multiple of " + std::to_string(alignment);
  if (sanitize::on) return sanitize::misaligned(address, alignment, where.c_str(), __builtin_return_address(0));
  const std::string place = std::string(access->place.file) + ":" + std::to_string(access->place.line);
  core->fail((place + ": an access to a " + access->type->name + " " + where).c_str(), cudaErrorMisalignedAddress);
  emulator_wait(0, 0, [](std::uint64_t, std::uint64_t, State) { return core->abandon(); });
}
