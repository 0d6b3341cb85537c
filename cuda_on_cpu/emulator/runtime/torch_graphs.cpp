// Records torch's operators during a capture by torch.cuda.CUDAGraph, and replays its graphs.
#include "torch_graphs.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/enum_tag.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>

#include "emulator/host.h"
#include "emulator/streams.h"

namespace emulator {
namespace {

using c10::IValue;

struct TorchGraph {
  cudaGraphExec_t work = nullptr;
  std::vector<c10::Storage> memory;  // allocated during the capture; kernels have its addresses
};

// The memory that changes during a capture, with its bytes before the capture. New memory has none.
struct Before {
  c10::Storage storage;
  std::optional<std::string> bytes;
};

std::atomic<bool> torch_capturing{false};
std::mutex changed_mutex;
std::map<c10::StorageImpl*, Before>& changed() {
  static auto* all = new std::map<c10::StorageImpl*, Before>;
  return *all;
}
std::set<TorchGraph*>& torch_graphs() {
  static auto* all = new std::set<TorchGraph*>;
  return *all;
}

cudaStream_t capture_stream() {
  static const cudaStream_t stream = [] {
    cudaStream_t created = nullptr;
    create_stream(&created, cudaStreamNonBlocking);  // as torch creates its streams
    return created;
  }();
  return stream;
}

void check(cudaError_t error) {
  if (!error) return;
  const std::string text = error_string(error);
  take_error();
  TORCH_CHECK(false, "CUDA error: ", text);
}

template <class F>
void for_each_tensor(const IValue& value, F use) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) use(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) for_each_tensor(tensor, use);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList())
      if (tensor) for_each_tensor(*tensor, use);
  }
}

// Returns a tensor of its own in the same memory. A program may later give the given tensor other memory or sizes.
at::Tensor fixed(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  return at::Tensor(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(c10::VariableVersion(0), /*allow_tensor_metadata_change=*/true));
}

IValue fixed(const IValue& value) {
  if (value.isTensor()) return fixed(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> out;
    for (const at::Tensor& tensor : value.toTensorVector()) out.push_back(fixed(tensor));
    return out;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> out;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList())
      out.push_back(tensor ? std::make_optional(fixed(*tensor)) : tensor);
    return out;
  }
  return value;
}

bool copies(const c10::OperatorHandle& op) { return op.schema().name() == "aten::copy_"; }

// Returns whether torch waits for the device in this operator, because the host needs a value or the number of values.
bool waits(const c10::OperatorHandle& op, c10::ArrayRef<IValue> arguments) {
  const std::string& name = op.schema().name();
  if (name == "aten::index" || name == "aten::_index_put_impl_") {
    bool mask = false;
    for_each_tensor(arguments[1], [&](const at::Tensor& index) { mask |= index.scalar_type() == at::kBool || index.scalar_type() == at::kByte; });
    return mask && (name == "aten::index" || arguments[2].toTensor().numel() != 1);
  }
  if (name == "aten::repeat_interleave" && arguments.size() == 2 && !arguments[1].isNone()) return false;
  return op.hasTag(at::Tag::data_dependent_output) || op.hasTag(at::Tag::dynamic_output_shape);
}

void refuse_waiting() {
  const cudaError_t error = refuse_in_capture();
  check(error ? error : cudaErrorStreamCaptureUnsupported);
}

// Does the operator once more, in the same state of torch's dispatcher, and puts its new results where those of the
// capture are.
void repeat(const c10::OperatorHandle& op, const std::vector<IValue>& arguments, const std::vector<std::pair<std::size_t, at::Tensor>>& results,
            const c10::impl::LocalDispatchKeySet& keys) {
  const c10::impl::ForceDispatchKeyGuard guard(keys);
  torch::jit::Stack stack;
  for (const IValue& argument : arguments) stack.push_back(fixed(argument));
  op.callBoxed(stack);
  std::vector<at::Tensor> repeated;
  for (const IValue& value : stack) for_each_tensor(value, [&](const at::Tensor& tensor) { repeated.push_back(tensor); });
  for (const auto& [position, result] : results) {
    const at::Tensor& now = repeated.at(position);
    TORCH_CHECK(now.storage().nbytes() == result.storage().nbytes(), "the results of ", op.schema().name(), " changed their size in a replay");
    if (now.storage().nbytes()) std::memcpy(result.storage().mutable_data(), now.storage().data(), now.storage().nbytes());
  }
}

void begin_torch_capture(const std::string& mode) {
  check(begin_capture(capture_stream(), mode == "relaxed" ? cudaStreamCaptureModeRelaxed : cudaStreamCaptureModeGlobal));
  torch_capturing = true;
}

// Gives all memory the contents that it had before the capture. Returns the memory that was allocated in the capture,
// filled with NaN.
std::vector<c10::Storage> undo() {
  std::vector<c10::Storage> allocated;
  for (auto& [impl, before] : changed()) {
    const bool restores = before.bytes && before.bytes->size() == before.storage.nbytes();
    if (!before.bytes) allocated.push_back(before.storage);
    if (!before.storage.nbytes()) continue;
    if (restores) std::memcpy(before.storage.mutable_data(), before.bytes->data(), before.bytes->size());
    else std::memset(before.storage.mutable_data(), 0xFF, before.storage.nbytes());
  }
  changed().clear();
  return allocated;
}

std::int64_t end_torch_capture() {
  torch_capturing = false;
  auto graph = std::make_unique<TorchGraph>();
  graph->memory = undo();
  cudaGraph_t captured = nullptr;
  check(end_capture(capture_stream(), &captured));
  check(instantiate(&graph->work, captured));
  destroy_graph(captured);
  torch_graphs().insert(graph.get());
  return reinterpret_cast<std::int64_t>(graph.release());
}

TorchGraph* torch_graph(std::int64_t handle) {
  auto* graph = reinterpret_cast<TorchGraph*>(handle);
  TORCH_CHECK(torch_graphs().count(graph), "no such graph");
  return graph;
}

void destroy_torch_graph(std::int64_t handle) {
  TorchGraph* graph = torch_graph(handle);
  torch_graphs().erase(graph);
  destroy_graph(graph->work);
  delete graph;
}

}  // namespace

bool torch_captures() { return torch_capturing; }
cudaStream_t torch_stream() { return torch_capturing ? capture_stream() : nullptr; }

void keep_in_capture(const at::Tensor& allocated) {
  std::lock_guard lock(changed_mutex);
  changed().try_emplace(allocated.storage().unsafeGetStorageImpl(), Before{allocated.storage(), std::nullopt});
}

CapturedOperator::CapturedOperator(const c10::OperatorHandle& op, c10::ArrayRef<IValue> arguments) : op_(op) {
  if (waits(op, arguments)) refuse_waiting();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& argument = op.schema().arguments()[i];
    // torch's schema of native_batch_norm does not say that it writes the running statistics.
    const bool written = (argument.alias_info() && argument.alias_info()->isWrite()) || argument.name().starts_with("running_");
    written_.push_back(written && !arguments[i].isNone());
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      // The last argument of copy_ says that the copy does not wait. torch then requires pinned memory of the host.
      TORCH_CHECK(tensor.is_cuda() || (copies(op) ? arguments[2].toBool() : tensor.dim() == 0),
                  "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is pinned. "
                  "Please use tensor.pin_memory() or allocate the tensor with pin_memory=True.");
      const c10::Storage& storage = tensor.storage();
      storages_.push_back(storage);
      if (!written) return;
      std::lock_guard lock(changed_mutex);
      if (!changed().count(storage.unsafeGetStorageImpl()))
        changed()[storage.unsafeGetStorageImpl()] = {storage, std::string(static_cast<const char*>(storage.data()), storage.nbytes())};
    });
    arguments_.push_back(fixed(arguments[i]));
  }
}

void CapturedOperator::run(torch::jit::Stack& stack) const {
  const std::vector<IValue> arguments = torch::jit::pop(stack, arguments_.size());
  const auto call = [&](auto argument) {
    const std::size_t below = stack.size();
    try {
      for (std::size_t i = 0; i < arguments.size(); ++i) stack.push_back(argument(i));
      op_.callBoxed(stack);
    } catch (...) {
      stack.resize(below);
      throw;
    }
  };
  try {
    call([&](std::size_t i) { return arguments[i]; });
  } catch (const c10::Error&) {
    // The operator may have met an index without a value. A GPU does not look at the indices during a capture.
    call([&](std::size_t i) -> IValue {
      if (written_[i] || !arguments[i].isTensor() || !arguments[i].toTensor().defined()) return arguments[i];
      const at::Tensor& tensor = arguments[i].toTensor();
      return c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/false) ? at::zeros_like(tensor) : tensor;
    });
  }
}

void CapturedOperator::record(c10::ArrayRef<IValue> results) const {
  std::vector<std::pair<std::size_t, at::Tensor>> fresh;
  std::size_t position = 0;
  for (const IValue& value : results)
    for_each_tensor(value, [&](const at::Tensor& result) {
      const bool known = std::any_of(storages_.begin(), storages_.end(), [&](const c10::Storage& each) { return each.is_alias_of(result.storage()); });
      if (!known) {
        keep_in_capture(result);
        fresh.emplace_back(position, fixed(result));
      }
      ++position;
    });
  // A view does nothing at a replay; an operator that only changes sizes and strides has done it.
  const bool writes = std::find(written_.begin(), written_.end(), true) != written_.end();
  if ((fresh.empty() && !writes) || op_.hasTag(at::Tag::inplace_view)) return;
  const auto keys = c10::impl::tls_local_dispatch_key_set();
  check(emulator::record(capture_stream(), [op = op_, arguments = arguments_, fresh, keys] {
    if (!synchronize()) repeat(op, arguments, fresh, keys);
    return synchronize();
  }));
}

}  // namespace emulator

TORCH_LIBRARY_FRAGMENT(emulator, library) {
  library.def("capture_begin(str mode) -> ()", [](std::string mode) { emulator::begin_torch_capture(mode); });
  library.def("capture_end() -> int", &emulator::end_torch_capture);
  library.def("replay(int graph) -> ()", [](std::int64_t graph) {
    emulator::check(emulator::launch_graph(emulator::torch_graph(graph)->work, emulator::torch_stream()));
  });
  library.def("destroy(int graph) -> ()", &emulator::destroy_torch_graph);
}

// Called by the worker process.
extern "C" bool emulator_torch_captures() { return emulator::torch_captures(); }
extern "C" std::uint64_t emulator_torch_stream() { return reinterpret_cast<std::uint64_t>(emulator::torch_stream()); }
// Records a call of a function of the host, such as one that runs a Triton kernel in its interpreter.
extern "C" void emulator_record_call(void (*function)()) {
  emulator::record(emulator::torch_stream(), [function] { return function(), emulator::synchronize(); });
}
