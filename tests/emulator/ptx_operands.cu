// Which operands of an asm statement fit which constraint: as nvcc 13.0 accepted each of them in a statement of its own.
#include <torch/extension.h>

#include <cstddef>

enum Choice { kOne };

template <class T>
static constexpr bool only(const char* constraints) {
  using emulator::ptx::fits;
  const bool found[] = {fits<'r', T>(), fits<'l', T>(), fits<'h', T>(), fits<'f', T>(), fits<'d', T>()};
  for (int i = 0; i < 5; i++) {
    bool wanted = false;
    for (const char* c = constraints; *c; c++) wanted |= *c == "rlhfd"[i];
    if (found[i] != wanted) return false;
  }
  return true;
}

static_assert(only<bool>("") && only<char>(""));
static_assert(only<short>("h") && only<unsigned short>("h"));
static_assert(only<int>("r") && only<unsigned>("r") && only<const int&>("r") && only<Choice>("r"));
static_assert(only<long>("l") && only<unsigned long long>("l") && only<size_t>("l") && only<void*>("l"));
static_assert(only<float>("f") && only<double>("d"));

static __global__ void counts(int* out) {
  constexpr int kGroups = 0;
  asm volatile("cp.async.wait_group %0;" : : "n"(kGroups));
  asm volatile("mov.u32 %0, %1;" : "=r"(*out) : "n"(static_cast<int>(sizeof(float))));
}

void operands(torch::Tensor out) { counts<<<1, 1>>>(out.data_ptr<int>()); }
