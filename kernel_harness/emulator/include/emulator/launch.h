// kernel<<<grid, block, shared, stream>>>(arguments), as the rewritten source says it.
#pragma once
#include <tuple>
#include <type_traits>

#include "emulator/host.h"
#include "emulator/memory.h"
#include "emulator/scheduler.h"

namespace emulator {

class Configuration {
 public:
  Configuration(dim3 grid, dim3 block, std::size_t shared_bytes = 0, cudaStream_t = nullptr, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : launch_{nullptr, grid, block, shared_bytes, nullptr, nullptr, file, line} {}

  // Arguments are taken by value, once, as a launch does; `call` names the kernel, so that its templates and
  // overloads resolve as they would in the original call.
  template <class Call, class... Arguments>
  void operator()(const char* kernel, Call call, Arguments... arguments) {
    launch_.kernel = kernel;
    unsigned position = 0;
    if (!valid(launch_) || !(... && reachable(kernel, position++, arguments))) return;
    auto bound = std::make_tuple(call, arguments...);
    launch_.arguments = &bound;
    launch_.body = [](void* all) {
      std::apply([](auto& call, auto&... arguments) { call(arguments...); }, *static_cast<decltype(bound)*>(all));
    };
    if (!run(launch_)) fail(cudaErrorLaunchFailure, last_fault());
  }

 private:
  // A kernel cannot follow a host pointer. A null one is the kernel's own business until it follows it.
  template <class T>
  static bool reachable(const char* kernel, unsigned position, const T& argument) {
    if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>) {
      if (argument && !is_device(const_cast<const void*>(static_cast<const volatile void*>(argument)))) return fail_host_pointer(kernel, position);
    }
    return true;
  }

  Launch launch_;
};

}  // namespace emulator
