// Finds a kernel's library in memory and its static shared memory, and moves this memory. It is the thread-local memory of
// the library on the OS thread that runs the block.
#include "static_memory.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <sstream>

#include "emulator/functions.h"

extern "C" void* __tls_get_addr(void* module_and_offset);

namespace emulator {
namespace {

// What the units of a library have declared about its kernels. Without a declaration nothing is known.
struct Declared {
  // Of each kernel: whether it may call a function with shared variables.
  std::map<std::string, std::map<std::string, bool>> kernels;
  bool wide = false;
};
struct Loaded {
  std::string path;
  bool read = false;  // whether its file was read
  std::shared_ptr<const std::vector<Variable>> variables;
  std::shared_ptr<Declared> declared;
};
std::mutex mutex;
std::map<std::uintptr_t, Loaded>& loaded() {  // by the lowest address of the library
  static auto* all = new std::map<std::uintptr_t, Loaded>;
  return *all;
}

struct Wanted {
  std::uintptr_t code;
  Library found;
  std::string path;
};

int look(dl_phdr_info* info, std::size_t, void* argument) {
  auto* wanted = static_cast<Wanted*>(argument);
  bool inside = false;
  Library library{~std::uintptr_t{0}};
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    const auto low = info->dlpi_addr + segment.p_vaddr;
    inside |= segment.p_type == PT_LOAD && wanted->code >= low && wanted->code < low + segment.p_memsz;
    if (segment.p_type == PT_TLS) library.module = info->dlpi_tls_modid, library.bytes = segment.p_memsz, library.alignment = segment.p_align;
    if (segment.p_type == PT_LOAD) library.low = std::min(library.low, low), library.high = std::max(library.high, low + segment.p_memsz);
  }
  if (inside) wanted->found = library, wanted->path = info->dlpi_name;
  return inside;
}

// The unqualified name of the outermost function that declares a variable, from its mangled name: `_ZZN1a1kIfEEvPfE1s` is
// `s` of `a::k<float>`. https://itanium-cxx-abi.github.io/cxx-abi/abi.html#mangling-scope
std::string function_of(const char* mangled) {
  const char* at = mangled;
  if (at[0] != '_' || at[1] != 'Z' || at[2] != 'Z') return "";
  at += 2;
  while (*at == 'Z') ++at;
  const bool nested = *at == 'N';
  if (nested) ++at;
  std::string name;
  do {
    if (*at == 'L') ++at;  // a function of this unit alone
    if (!std::isdigit(static_cast<unsigned char>(*at))) return name;
    char* text = nullptr;
    const std::size_t length = std::strtoul(at, &text, 10);
    name.assign(text, length);
    at = text + length;
  } while (nested);
  return name;
}

// Reads the thread-local variables of a library from its file. Returns null if the file does not name them.
std::shared_ptr<const std::vector<Variable>> variables_in(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.size() < sizeof(ElfW(Ehdr)) || text.compare(0, SELFMAG, ELFMAG)) return nullptr;
  const auto* header = reinterpret_cast<const ElfW(Ehdr)*>(text.data());
  if (header->e_shoff + header->e_shnum * sizeof(ElfW(Shdr)) > text.size()) return nullptr;
  const auto* sections = reinterpret_cast<const ElfW(Shdr)*>(text.data() + header->e_shoff);
  for (unsigned i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    auto found = std::make_shared<std::vector<Variable>>();
    const auto* symbols = reinterpret_cast<const ElfW(Sym)*>(text.data() + sections[i].sh_offset);
    const char* names = text.data() + sections[sections[i].sh_link].sh_offset;
    for (std::size_t s = 0; s < sections[i].sh_size / sizeof *symbols; ++s) {
      if (ELF64_ST_TYPE(symbols[s].st_info) != STT_TLS || symbols[s].st_shndx == SHN_UNDEF) continue;
      const std::string name = names + symbols[s].st_name;
      found->push_back({function_of(name.c_str()), name.substr(0, name.rfind('E')), symbols[s].st_value, symbols[s].st_size});
    }
    return found;
  }
  return nullptr;
}

Loaded& loaded_of(const Wanted& wanted) {
  Loaded& found = loaded()[wanted.found.low];
  if (found.path != wanted.path) found = {.path = wanted.path};
  return found;
}

Wanted wanted_of(const void* code) {
  Wanted wanted{reinterpret_cast<std::uintptr_t>(code), {}, {}};
  dl_iterate_phdr(&look, &wanted);
  return wanted;
}

// The entry of a module in the table of an OS thread's thread-local memory. glibc's functions read it for each access to a
// variable of a library that was loaded by dlopen. The layout is that of its libthread_db, which debuggers use.
char*& entry(std::size_t module) {
#if defined(__x86_64__)
  constexpr int kTable = 1;
#else
  constexpr int kTable = 0;
#endif
  struct Entry {
    char* start;
    void* to_free;
  };
  return static_cast<Entry**>(__builtin_thread_pointer())[kTable][module].start;
}

}  // namespace

Library library_of(const void* code) {
  Wanted wanted = wanted_of(code);
  std::lock_guard lock(mutex);
  Loaded& found = loaded_of(wanted);
  if (wanted.found.bytes && !found.read) found.variables = variables_in(wanted.path), found.read = true;
  wanted.found.variables = found.variables;
  return wanted.found;
}

bool is_code(const void* address) {
  auto in_code = [](dl_phdr_info* info, std::size_t, void* code) {
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const auto& segment = info->dlpi_phdr[i];
      const std::uintptr_t offset = *static_cast<std::uintptr_t*>(code) - info->dlpi_addr - segment.p_vaddr;
      if (segment.p_type == PT_LOAD && segment.p_flags & PF_X && offset < segment.p_memsz) return 1;
    }
    return 0;
  };
  auto code = reinterpret_cast<std::uintptr_t>(address);
  return dl_iterate_phdr(in_code, &code) == 1;
}

bool declare_kernels(const void* here, const char* names, bool wide) {
  const Wanted wanted = wanted_of(here);
  std::lock_guard lock(mutex);
  Loaded& found = loaded_of(wanted);
  if (!found.declared) found.declared = std::make_shared<Declared>();
  std::istringstream words(names);
  std::map<std::string, bool>* calls = nullptr;
  for (std::string name; words >> name;) {
    if (name[0] != '+' && name[0] != '-') calls = &found.declared->kernels[name];
    else (*calls)[name.substr(1)] = name[0] == '+';
  }
  found.declared->wide |= wide;
  return true;
}

StaticPart static_part(const Library& library, const char* kernel) {
  std::shared_ptr<const Declared> declared;
  {
    std::lock_guard lock(mutex);
    declared = loaded()[library.low].declared;
  }
  const bool wide = !declared || declared->wide;
  if (!library.bytes) return {.wide = wide};
  const StaticPart all{0, library.bytes, library.bytes, false, wide};
  if (!declared || !library.variables) return all;
  const std::string name = kernel_name(kernel);
  const auto calls = declared->kernels.find(name);
  if (calls == declared->kernels.end()) return all;
  StaticPart part{.low = library.bytes, .wide = wide};
  std::size_t last = 0;
  std::map<std::string, std::string> instances;
  for (const Variable& variable : *library.variables) {
    const bool own = variable.function == name;
    const auto called = calls->second.find(variable.function);
    const bool known = called != calls->second.end();
    if (!own && (known ? !called->second : declared->kernels.count(variable.function))) continue;
    // Of the instances of a template, the kernel uses only some.
    part.exact &= (own || known) && instances.try_emplace(variable.function, variable.instance).first->second == variable.instance;
    part.used += (variable.bytes + 15) / 16 * 16;  // each begins at a multiple of 16 bytes
    part.low = std::min(part.low, variable.offset);
    if (variable.offset + variable.bytes > part.high) part.high = variable.offset + variable.bytes, last = variable.bytes;
  }
  part.low = std::min(part.low, part.high);
  part.used -= (16 - last % 16) % 16;
  return part;
}

char* statics_of(std::size_t module) {
  if (!module) return nullptr;
  std::size_t module_and_offset[2] = {module, 0};
  auto* start = static_cast<char*>(__tls_get_addr(module_and_offset));
  if (start == entry(module)) return start;
  std::fputs("the emulation of CUDA cannot place shared memory with this C library\n", stderr);
  std::abort();
}

void move_statics(std::size_t module, char* start) {
  if (module) entry(module) = start;
}

}  // namespace emulator
