// The emulated CUDA device for torch. Its memory is host memory. Its tensors report is_cuda(), and kernels can use
// them. One boxed fallback runs every operator: it calls torch's own CPU kernel on host tensors that share the storage
// of the device tensors. So Python and C++ code for CUDA run unchanged.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/set_native.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstring>
#include <set>
#include <unordered_map>

#include "emulator/host.h"
#include "emulator/memory.h"
#include "emulator/sanitize.h"
#include "tf32.h"
#include "torch_graphs.h"

namespace {

using at::Tensor;
using c10::IValue;
const c10::Device kDevice{c10::kCUDA, 0};

struct DeviceAllocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    if (!bytes) return {nullptr, nullptr, &free_device, kDevice};
    void* address = emulator::allocate(bytes);
    TORCH_CHECK_WITH(OutOfMemoryError, address, "CUDA out of memory. Tried to allocate ", bytes, " bytes.");
    return {address, address, &free_device, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_device; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
  static void free_device(void* address) { emulator::release(address); }
};

DeviceAllocator allocator;

struct DeviceGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::kCUDA; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getDefaultStream(c10::Device) const override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  c10::Device getDevice() const override { return kDevice; }
  c10::Device exchangeDevice(c10::Device) const override { return kDevice; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Stream getStream(c10::Device) const override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  c10::Stream getNewStream(c10::Device, int) const override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  c10::Stream exchangeStream(c10::Stream) const override { return c10::Stream(c10::Stream::DEFAULT, kDevice); }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}
};

struct Hooks final : at::CUDAHooksInterface {
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex current_device() const override { return 0; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  int getNumGPUs() const override { return 1; }
  c10::Device getDeviceFromPtr(void* address) const override {
    TORCH_CHECK(emulator::is_device(address), "The specified pointer resides on host memory and is not registered with any CUDA device.");
    return kDevice;
  }
  void deviceSynchronize(c10::DeviceIndex) const override {}
  // torch's CPU kernels draw the random numbers, so this is the CPU's default generator, seeded by torch.manual_seed.
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return at::detail::getDefaultCPUGenerator(); }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::detail::createCPUGenerator(); }
};

// Returns a tensor in `storage` with the sizes, strides and flags of `tensor`. `inference` says whether it is an inference
// tensor, which has no version counter. A tensor's constructor takes this from the mode of the thread.
Tensor seen_in(const c10::Storage& storage, const Tensor& tensor, bool inference = c10::InferenceMode::is_enabled()) {
  const c10::InferenceMode mode(inference);
  const auto device = storage.device();
  auto key = device.is_cuda() ? c10::DispatchKey::CUDA : device.is_meta() ? c10::DispatchKey::Meta : c10::DispatchKey::CPU;
  auto out = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key), tensor.dtype());
  auto* impl = out.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  impl->_set_conj(tensor.is_conj());
  impl->_set_neg(tensor.is_neg());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return out;
}

void drop(void* storage) { delete static_cast<c10::Storage*>(storage); }

void forget(void* storage) {
  emulator::forget(static_cast<c10::Storage*>(storage)->data());
  drop(storage);
}

// Returns a storage over the same bytes with another device. The new storage keeps the given one alive.
c10::Storage twin(const c10::Storage& storage, c10::Device device, c10::Allocator* resizes, c10::DeleterFnPtr deleter) {
  auto* kept = new c10::Storage(storage);
  return {c10::Storage::use_byte_size_t(), kept->nbytes(), c10::DataPtr(kept->mutable_data(), kept, deleter, device), resizes, true};
}

// The device on which torch runs the operators of emulated tensors. In a dry run they compute shapes only.
c10::Device host() { return emulator::is_dry() ? c10::kMeta : c10::kCPU; }

c10::Storage host_view(const c10::Storage& device) {
  if (emulator::is_dry())
    return {c10::Storage::use_byte_size_t(), device.nbytes(), c10::DataPtr(nullptr, c10::kMeta), c10::GetAllocator(c10::kMeta), true};
  return twin(device, c10::kCPU, c10::GetAllocator(c10::kCPU), &drop);
}

// Makes newly allocated host memory device memory.
c10::Storage adopt(const c10::Storage& host) {
  if (emulator::is_dry() && host.device().is_meta())
    return {c10::Storage::use_byte_size_t(), host.nbytes(), allocator.allocate(host.nbytes()), &allocator, true};
  if (host.data()) emulator::adopt(host.data(), host.nbytes());
  return twin(host, kDevice, &allocator, &forget);
}

// The tensors of one operator call: each device tensor and its host alias.
class Crossing {
 public:
  explicit Crossing(const c10::OperatorHandle& op) : op_(op) {}

  IValue to_cpu(const IValue& value) {
    if (value.isTensor()) return to_cpu(value.toTensor());
    if (value.isList() && has_tensors(value.toList())) {
      const c10::impl::GenericList given = value.toList();
      c10::impl::GenericList out(given.elementType());
      for (const IValue& each : value.toListRef()) out.push_back(to_cpu(each));
      return out;
    }
    if (value.isDevice() && value.toDevice().is_cuda()) return host();
    return value;
  }

  IValue to_cuda(const IValue& value) {
    if (value.isTensor()) return to_cuda(value.toTensor());
    if (value.isTensorList()) {
      c10::List<Tensor> out;
      for (const Tensor& tensor : value.toTensorVector()) out.push_back(to_cuda(tensor));
      return out;
    }
    return value;
  }

  // torch has the same rule and message: a host tensor beside device tensors is an error. Exceptions are a tensor with
  // a single number, an index, and operators that copy between devices.
  void check_devices() const {
    static const std::set<std::string> across{"aten::copy_", "aten::_copy_from", "aten::index",
                                              "aten::index_put_", "aten::_index_put_impl_"};
    if (!host_seen_ || tensors_.empty() || across.count(op_.schema().operator_name().name)) return;
    TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! (in ",
                op_.schema().operator_name().name, ")");
  }

  // An operator that resized its output has resized only the host alias. This resizes the device tensor.
  void write_back() const {
    for (const auto& [device, host] : storages_) {
      if (emulator::is_dry() ? device.nbytes() == host.nbytes() : device.data() == host.data()) continue;
      auto moved = allocator.allocate(host.nbytes());
      if (host.nbytes() && !emulator::is_dry()) std::memcpy(moved.get(), host.data(), host.nbytes());
      device.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(moved));
      device.unsafeGetStorageImpl()->set_nbytes(host.nbytes());
    }
    for (const auto& [device, host] : tensors_)
      if (device.sizes() != host.sizes() || device.strides() != host.strides())
        device.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
  }

 private:
  // Whether the elements are tensors or None. TorchScript may know more of them, such as their dtype.
  static bool has_tensors(const c10::impl::GenericList& list) { return list.elementType()->isSubtypeOf(*c10::OptionalType::ofTensor()); }

  Tensor to_cpu(const Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    if (!tensor.is_cuda()) {
      host_seen_ |= tensor.dim() > 0;
      return tensor;
    }
    const c10::Storage* found = nullptr;
    for (const auto& [device, host] : storages_)
      if (device.is_alias_of(tensor.storage())) found = &host;
    if (!found) found = &storages_.emplace_back(tensor.storage(), host_view(tensor.storage())).second;
    tensors_.emplace_back(tensor, seen_in(*found, tensor));
    return tensors_.back().second;
  }

  Tensor to_cuda(const Tensor& result) {
    if (!result.defined()) return result;
    for (const auto& [device, host] : tensors_) {
      if (!host.is_same(result)) continue;
      if (emulator::sanitize::on)  // the operator returns an argument, so it has written to it
        emulator::sanitize::written_by_host(device.data_ptr(), at::detail::computeStorageNbytes(device.sizes(), device.strides(), device.itemsize()));
      return device;
    }
    for (const auto& [device, host] : storages_)
      if (host.is_alias_of(result.storage())) return seen_in(device, result, is_inference(device));
    return seen_in(adopt(result.storage()), result);
  }

  // torch makes a view of an inference tensor an inference tensor, and no other view, in each mode of the thread.
  bool is_inference(const c10::Storage& device) const {
    for (const auto& [tensor, host] : tensors_)
      if (tensor.storage().is_alias_of(device)) return tensor.is_inference();
    return c10::InferenceMode::is_enabled();
  }

  const c10::OperatorHandle& op_;
  std::vector<std::pair<Tensor, Tensor>> tensors_;            // device, host
  std::vector<std::pair<c10::Storage, c10::Storage>> storages_;
  bool host_seen_ = false;
};

// Returns the position of the first of the two matrices that an operator multiplies with cuBLAS, or -1.
int factors_of(const c10::OperatorHandle& op) {
  static const std::unordered_map<std::string, int> products{{"aten::mm", 0},      {"aten::bmm", 0},    {"aten::addmm", 1},
                                                             {"aten::baddbmm", 1}, {"aten::addbmm", 1}, {"aten::_addmm_activation", 1}};
  const auto found = products.find(op.schema().operator_name().name);
  return found == products.end() ? -1 : found->second;
}

// Rounds the factors of a product of float32 matrices, as a GPU does if torch's settings allow TF32.
void round_factors(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const int first = factors_of(op);
  if (first < 0 || !emulator::torch_allows_tf32()) return;
  for (std::size_t i = stack.size() - op.schema().arguments().size() + static_cast<std::size_t>(first), end = i + 2; i < end; ++i)
    if (stack[i].toTensor().scalar_type() == at::kFloat) stack[i] = emulator::rounded_to_tf32(stack[i].toTensor());
}

// Calls an operator with tensors in the host's memory. For 16-bit numbers, torch has the listed ones for CUDA alone.
void call_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  static const std::set<std::string> of_32_bits{"aten::avg_pool3d"}, widening{"aten::_softmax", "aten::_log_softmax"};
  const std::size_t first = stack.size() - op.schema().arguments().size();
  if (widening.count(op.schema().operator_name().name) && stack[first + 2].toBool()) {  // its argument half_to_float
    stack[first] = stack[first].toTensor().to(at::kFloat);
    stack[first + 2] = false;
  }
  if (!of_32_bits.count(op.schema().operator_name().name)) return op.callBoxed(&stack);
  const auto type = stack[first].toTensor().scalar_type();
  if (type != at::kHalf && type != at::kBFloat16) return op.callBoxed(&stack);
  stack[first] = stack[first].toTensor().to(at::kFloat);
  if (op.schema().operator_name().overload_name.empty()) {
    op.callBoxed(&stack);
    stack.back() = stack.back().toTensor().to(type);
    return;
  }
  const Tensor out = stack.back().toTensor();
  stack.back() = out.to(at::kFloat);
  op.callBoxed(&stack);
  out.resize_(stack.back().toTensor().sizes()).copy_(stack.back().toTensor());
  stack.back() = out;
}

// Calls an operator with tensors without values. It raises an exception if it needs values.
void run_dry(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  try {
    op.callBoxed(&stack);
  } catch (...) {
    emulator::end_dry_run();
  }
}

void run_on_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  emulator::finish(nullptr);
  TORCH_CHECK(!emulator::synchronize(), "CUDA error: ", emulator::error_string(emulator::synchronize()));
  Crossing crossing(op);
  auto arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  for (auto& argument : arguments) stack->push_back(crossing.to_cpu(argument));
  crossing.check_devices();
  std::optional<emulator::CapturedOperator> captured;
  if (emulator::torch_captures()) captured.emplace(op, arguments);
  if (emulator::is_dry()) {
    run_dry(op, *stack);
  } else {
    round_factors(op, *stack);
    captured ? captured->run(*stack) : call_on_cpu(op, *stack);
  }
  crossing.write_back();
  auto results = torch::jit::pop(*stack, op.schema().returns().size());
  for (auto& result : results) result = crossing.to_cuda(result);
  if (captured) captured->record(results);
  for (auto& result : results) stack->push_back(std::move(result));
}

// torch's tracer records the operator that a convolution calls, and not the convolution itself.
void convolve(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
  static const auto inner = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_convolution", "");
  for (const bool setting : {false, false, true, true}) stack->push_back(setting);  // of cuDNN, which is not there
  inner.callBoxed(stack);
}

Tensor allocated(Tensor tensor) {
  if (emulator::torch_captures()) emulator::keep_in_capture(tensor);
  return tensor;
}

Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
             std::optional<c10::Device>, std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  return allocated(at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                             c10::dtype_or_default(dtype), format));
}

Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                     std::optional<c10::Layout>, std::optional<c10::Device>, std::optional<bool>) {
  return allocated(at::detail::empty_strided_generic(size, stride, &allocator, c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                                     c10::dtype_or_default(dtype)));
}

// Returns a tensor without memory on the emulated device.
Tensor& set_to_none(Tensor& tensor) {
  c10::Storage none(c10::Storage::use_byte_size_t(), 0, allocator.allocate(0), &allocator, true);
  return at::native::set_storage_cpu_(tensor, none, 0, {0}, {});
}

class Silence final : c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}

 private:
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

// A registration must outlive every tensor, so its handle is leaked on purpose.
template <class Handle>
void keep(Handle handle) {
  new Handle(std::move(handle));
}

}  // namespace

// emulator::as_cuda: makes the memory of a host tensor device memory. Its owner does not change. An example is memory
// that is shared with the judge.
TORCH_LIBRARY(emulator, library) {
  library.def("as_cuda(Tensor host) -> Tensor", [](const Tensor& host) { return seen_in(adopt(host.storage()), host); });
}

// Registers the emulated device as torch's CUDA device in this process. In a CUDA build of torch, each GPU kernel is
// overridden, because it would have priority over the fallback.
extern "C" void emulator_install() {
  static DeviceGuard guard;
  c10::impl::device_guard_impl_registry[static_cast<std::size_t>(c10::kCUDA)].store(&guard);
  at::CUDAHooksRegistry()->Register(
      "CUDAHooks", [](at::CUDAHooksArgs) -> std::unique_ptr<at::CUDAHooksInterface> { return std::make_unique<Hooks>(); },
      c10::RegistryPriority::REGISTRY_PREFERRED);
  // torch may already keep a hooks object, so that object is overwritten with ours. Hooks objects have no state.
  static_assert(sizeof(Hooks) == sizeof(at::CUDAHooksInterface));
  new (const_cast<at::CUDAHooksInterface*>(&at::detail::getCUDAHooks())) Hooks;
  auto& dispatcher = c10::Dispatcher::singleton();
  auto fallback = c10::KernelFunction::makeFromBoxedFunction<&run_on_cpu>();
  keep(dispatcher.registerFallback(c10::DispatchKey::CUDA, fallback, "emulated CUDA"));
  auto on_cuda = [&](c10::OperatorName name, c10::KernelFunction kernel) {
    keep(dispatcher.registerImpl(std::move(name), c10::DispatchKey::CUDA, std::move(kernel), std::nullopt, nullptr, "emulated CUDA"));
  };
  Silence overriding_is_the_purpose;
  for (const auto& name : dispatcher.getAllOpNamesForDispatchKey(c10::DispatchKey::CUDA))
    if (name.getNamespace() == "aten") on_cuda(name, fallback);
  on_cuda({"aten::copy_", ""}, fallback);  // copy_ is a composite operator, which would look for a CUDA kernel
  on_cuda({"aten::convolution", ""}, c10::KernelFunction::makeFromBoxedFunction<&convolve>());
  on_cuda({"aten::_convolution", ""}, fallback);  // for a CUDA tensor, it would choose a slow form instead of oneDNN's
  // Operators that replace a tensor's storage act on the device tensor itself, not on its host alias.
  on_cuda({"aten::set_", "source_Storage_storage_offset"}, c10::KernelFunction::makeFromUnboxedRuntimeFunction(&at::native::set_storage_cpu_));
  on_cuda({"aten::set_", "source_Storage"}, c10::KernelFunction::makeFromUnboxedRuntimeFunction(
                                                static_cast<Tensor& (*)(Tensor&, c10::Storage)>(&at::native::set_)));
  on_cuda({"aten::set_", "source_Tensor"}, c10::KernelFunction::makeFromUnboxedRuntimeFunction(&at::native::set_tensor_));
  on_cuda({"aten::set_", ""}, c10::KernelFunction::makeFromUnboxedRuntimeFunction(&set_to_none));
  on_cuda({"aten::empty", "memory_format"}, c10::KernelFunction::makeFromUnboxedRuntimeFunction(&empty));
  on_cuda({"aten::empty_strided", ""}, c10::KernelFunction::makeFromUnboxedRuntimeFunction(&empty_strided));
}
