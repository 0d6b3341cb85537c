// A kernel's library, and the static shared memory in it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace emulator {

// A variable in the thread-local memory of a library, such as a `__shared__` variable. `function` is the unqualified name
// of the function that declares it, or empty, and `instance` tells the instances of a template apart.
struct Variable {
  std::string function, instance;
  std::size_t offset, bytes;
};

// The library of a kernel: the range of its addresses, its number among the modules with thread-local memory, and this
// memory. The range is empty for code that is in no library.
struct Library {
  std::uintptr_t low = 0, high = 0;
  std::size_t module = 0, bytes = 0, alignment = 1;
  std::shared_ptr<const std::vector<Variable>> variables;  // null if they are not known
};
// The library that contains `code`.
Library library_of(const void* code);

// The part of a library's thread-local memory that a kernel may use.
struct StaticPart {
  std::size_t low = 0, high = 0;
  std::size_t used = 0;  // the bytes of the kernel's own variables, without those of other kernels in between
  bool exact = true;     // whether it is known which variables the kernel uses
  bool wide = true;   // whether the kernel may need memory that begins at a multiple of 1024 bytes
};
StaticPart static_part(const Library& library, const char* kernel);

// Where the thread-local memory of a module begins on the calling OS thread. `move_statics` moves it: accesses of this OS
// thread then go to `start`, until it is moved back.
char* statics_of(std::size_t module);
void move_statics(std::size_t module, char* start);

}  // namespace emulator
