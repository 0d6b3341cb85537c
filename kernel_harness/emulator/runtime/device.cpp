// A CUDA device for torch whose memory is host memory: tensors that say is_cuda() and mean it.
// Every operator runs torch's own CPU kernel on aliases of the same storage (one boxed fallback), so that
// Python and C++ see a CUDA machine without a word of theirs rewritten.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/set_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstring>
#include <set>

#include "emulator/memory.h"
#include "emulator/sanitize.h"

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
  // What draws is the CPU's kernel, so the generator is the CPU's, the default one seeded by torch.manual_seed.
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override { return at::detail::getDefaultCPUGenerator(); }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::detail::createCPUGenerator(); }
};

// The same elements of another storage.
Tensor seen_in(const c10::Storage& storage, const Tensor& tensor) {
  auto key = storage.device().is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU;
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

// A storage over the same bytes that says it is elsewhere, and keeps the first one alive.
c10::Storage twin(const c10::Storage& storage, c10::Device device, c10::Allocator* resizes, c10::DeleterFnPtr deleter) {
  auto* kept = new c10::Storage(storage);
  return {c10::Storage::use_byte_size_t(), kept->nbytes(), c10::DataPtr(kept->mutable_data(), kept, deleter, device), resizes, true};
}

c10::Storage host_view(const c10::Storage& device) { return twin(device, c10::kCPU, c10::GetAllocator(c10::kCPU), &drop); }

// Fresh host memory becomes the device's.
c10::Storage adopt(const c10::Storage& host) {
  if (host.data()) emulator::adopt(host.data(), host.nbytes());
  return twin(host, kDevice, &allocator, &forget);
}

// One call's tensors on both sides.
class Crossing {
 public:
  explicit Crossing(const c10::OperatorHandle& op) : op_(op) {}

  IValue to_cpu(const IValue& value) {
    if (value.isTensor()) return to_cpu(value.toTensor());
    if (value.isTensorList()) {
      c10::List<Tensor> out;
      for (const Tensor& tensor : value.toTensorVector()) out.push_back(to_cpu(tensor));
      return out;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> out;
      for (const std::optional<Tensor>& tensor : value.toOptionalTensorList())
        out.push_back(tensor && tensor->defined() ? std::make_optional(to_cpu(*tensor)) : tensor);
      return out;
    }
    if (value.isDevice() && value.toDevice().is_cuda()) return c10::Device(c10::kCPU);
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

  // torch's own rule and words: a host tensor among device tensors is an error, save a single number,
  // an index, and the operators whose job is to copy across.
  void check_devices() const {
    static const std::set<std::string> across{"aten::copy_", "aten::_copy_from", "aten::index",
                                              "aten::index_put_", "aten::_index_put_impl_"};
    if (!host_seen_ || tensors_.empty() || across.count(op_.schema().operator_name().name)) return;
    TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! (in ",
                op_.schema().operator_name().name, ")");
  }

  // An operator that resized its output did so on the host's twin of it.
  void write_back() const {
    for (const auto& [device, host] : storages_) {
      if (device.data() == host.data()) continue;
      auto moved = allocator.allocate(host.nbytes());
      if (host.nbytes()) std::memcpy(moved.get(), host.data(), host.nbytes());
      device.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(moved));
      device.unsafeGetStorageImpl()->set_nbytes(host.nbytes());
    }
    for (const auto& [device, host] : tensors_)
      if (device.sizes() != host.sizes() || device.strides() != host.strides())
        device.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
  }

 private:
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
      if (emulator::sanitize::on)  // what an operator gives back as its own argument, it has written
        emulator::sanitize::written_by_host(device.data_ptr(), at::detail::computeStorageNbytes(device.sizes(), device.strides(), device.itemsize()));
      return device;
    }
    for (const auto& [device, host] : storages_)
      if (host.is_alias_of(result.storage())) return seen_in(device, result);
    return seen_in(adopt(result.storage()), result);
  }

  const c10::OperatorHandle& op_;
  std::vector<std::pair<Tensor, Tensor>> tensors_;            // device, host
  std::vector<std::pair<c10::Storage, c10::Storage>> storages_;
  bool host_seen_ = false;
};

void run_on_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  Crossing crossing(op);
  auto arguments = torch::jit::pop(*stack, op.schema().arguments().size());
  for (auto& argument : arguments) stack->push_back(crossing.to_cpu(argument));
  crossing.check_devices();
  op.callBoxed(stack);
  crossing.write_back();
  auto results = torch::jit::pop(*stack, op.schema().returns().size());
  for (auto& result : results) stack->push_back(crossing.to_cuda(result));
}

Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
             std::optional<c10::Device>, std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                   c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                     std::optional<c10::Layout>, std::optional<c10::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &allocator, c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                           c10::dtype_or_default(dtype));
}

// A tensor without memory, of its own device.
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

// Registration cannot be undone while a tensor lives, so the handles are leaked on purpose.
template <class Handle>
void keep(Handle handle) {
  new Handle(std::move(handle));
}

}  // namespace

// Bytes somebody else owns, shared with the judge for instance, as device memory.
TORCH_LIBRARY(emulator, library) {
  library.def("as_cuda(Tensor host) -> Tensor", [](const Tensor& host) { return seen_in(adopt(host.storage()), host); });
}

// Makes this process a CUDA machine. On a CUDA build of torch its GPU kernels are overridden one by one:
// a fallback alone would lose to them.
extern "C" void emulator_install() {
  static DeviceGuard guard;
  c10::impl::device_guard_impl_registry[static_cast<std::size_t>(c10::kCUDA)].store(&guard);
  at::CUDAHooksRegistry()->Register(
      "CUDAHooks", [](at::CUDAHooksArgs) -> std::unique_ptr<at::CUDAHooksInterface> { return std::make_unique<Hooks>(); },
      c10::RegistryPriority::REGISTRY_PREFERRED);
  // torch may have looked before now and kept what it found: the object it kept becomes ours. It has no state.
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
  on_cuda({"aten::copy_", ""}, fallback);  // a composite that would look for a CUDA kernel inside
  // What gives a tensor another storage is about the device's own: a twin on the host has nothing to do with it.
  on_cuda({"aten::set_", "source_Storage_storage_offset"}, c10::KernelFunction::makeFromUnboxedRuntimeFunction(&at::native::set_storage_cpu_));
  on_cuda({"aten::set_", "source_Storage"}, c10::KernelFunction::makeFromUnboxedRuntimeFunction(
                                                static_cast<Tensor& (*)(Tensor&, c10::Storage)>(&at::native::set_)));
  on_cuda({"aten::set_", "source_Tensor"}, c10::KernelFunction::makeFromUnboxedRuntimeFunction(&at::native::set_tensor_));
  on_cuda({"aten::set_", ""}, c10::KernelFunction::makeFromUnboxedRuntimeFunction(&set_to_none));
  on_cuda({"aten::empty", "memory_format"}, c10::KernelFunction::makeFromUnboxedRuntimeFunction(&empty));
  on_cuda({"aten::empty_strided", ""}, c10::KernelFunction::makeFromUnboxedRuntimeFunction(&empty_strided));
}
