// Launches. The rewritten source has a call of Configuration for kernel<<<grid, block, shared, stream>>>(arguments).
#pragma once
#include <tuple>
#include <type_traits>
#include <utility>

#include "emulator/host.h"
#include "emulator/memory.h"
#include "emulator/scheduler.h"

// The name of a kernel in a launch that a macro has: the preprocessor replaces the macro's parameters first.
#define EMULATOR_TEXT(...) #__VA_ARGS__

namespace emulator {

// The bytes that an argument surely takes among the parameters of a kernel. A number may convert to a smaller one.
template <class T>
constexpr std::size_t kParameterBytes = std::is_class_v<T> || std::is_union_v<T> ? sizeof(T) : 0;

class Configuration {
 public:
  Configuration(dim3 grid, dim3 block, std::size_t shared_bytes = 0, cudaStream_t stream = nullptr, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : launch_{nullptr, grid, block, shared_bytes, nullptr, nullptr, file, line}, stream_(stream) {}

  Configuration& cooperative() {
    launch_.cooperative = true;
    return *this;
  }
  Configuration& clusters(dim3 size) {
    launch_.cluster = size;
    return *this;
  }

  // Launches the kernel. Its arguments are copied once, as in a CUDA launch. `call` is a lambda around the kernel's
  // expression, so that templates and overloads resolve as in the original launch.
  template <class Call, class... Arguments>
  void operator()(const char* kernel, Call call, Arguments... arguments) {
    static_assert((std::size_t{0} + ... + kParameterBytes<Arguments>) <= limits::kParameterBytes,
                  "the parameters of a kernel can have 32764 bytes at most");
    if (in_kernel()) return lack_in_kernel(std::string("the launch of ") + kernel + " from device code", launch_.file, launch_.line);
    launch_.kernel = kernel;
    unsigned position = 0;
    if (!valid(launch_) || !(... && reachable(kernel, position++, arguments))) return;
    auto bound = std::make_tuple(call, arguments...);
    launch_.body = [](void* all) {
      // The arguments are local copies. No store of the kernel can change them, so the compiler keeps them in
      // registers.
      std::apply([](auto call, auto... arguments) { run_row([&] { call(arguments...); }); }, *static_cast<decltype(bound)*>(all));
    };
    launch_.ticket = take_ticket(stream_);
    if (captures(stream_) || defers(stream_)) {
      const auto later = captures(stream_) ? &record : &defer_launch;
      later(stream_, [bound, launch = launch_]() mutable {
        auto local = bound;  // on the stack, where the sanitizer expects the arguments of a kernel
        if (ticket_of_graph) launch.ticket = ticket_of_graph;
        return ++launches, run_with(launch, &local);
      }, cudaGraphNodeTypeKernel);
    } else {
      finish(stream_);
      run_with(launch_, &bound);
    }
  }

 private:
  // Returns whether a kernel may get this argument. A host pointer is an error. A null pointer is an error only if the
  // kernel reads it.
  template <class T>
  static bool reachable(const char* kernel, unsigned position, const T& argument) {
    if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>) {
      if (argument && !is_device(const_cast<const void*>(static_cast<const volatile void*>(argument)))) return fail_host_pointer(kernel, position);
    }
    return true;
  }

  static cudaError_t defer_launch(cudaStream_t stream, Work work, cudaGraphNodeType) {
    --launches;  // it counts when it runs
    return defer(stream, std::move(work));
  }

  static cudaError_t run_with(Launch& launch, void* arguments) {
    launch.arguments = arguments;
    if (!run(launch)) end_with_fault(launch);
    return synchronize();
  }

  Launch launch_;
  cudaStream_t stream_;
};

// Does the work of a library's kernels, such as a device-wide sort, on the host.
template <class W>
cudaError_t launch_library(cudaStream_t stream, W work) {
  ++launches;
  if (synchronize()) return synchronize();
  auto now = [=]() mutable { return skips_kernels() ? cudaSuccess : (work(), synchronize()); };
  return at_once_in_stream(stream, now);
}
// Tells the sanitizer what such work has written, if `to` is a pointer.
template <class To>
void wrote(const To& to, std::size_t count) {
  if constexpr (std::is_pointer_v<To>) written_by_library(static_cast<const void*>(to), count * sizeof(*to));
}

// Launches a kernel. `arguments` has the address of each argument.
template <class... P, std::size_t... I>
cudaError_t launch(const char* name, void (*kernel)(P...), Configuration configuration, void** arguments, std::index_sequence<I...>) {
  const cudaError_t before = take_error();  // this call must return only its own error
  configuration(name, [=](auto... each) { kernel(each...); }, *static_cast<std::remove_const_t<std::remove_reference_t<P>>*>(arguments[I])...);
  const cudaError_t own = peek_error();
  if (!own && before) give(before);
  return own;
}

}  // namespace emulator

#include "emulator/launch_calls.h"
#include "emulator/graph_nodes.h"
