"""Python and C++ calls that published kernel files expect to work on a CUDA machine."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
from pathlib import Path

import pytest
import torch
from support.emulated_process import emulated, inside, load_inline  # noqa: F401 - a fixture
from torch.utils import _pytree as pytree

import kernel_harness
from cuda_on_cpu.compile.errors import BuildFailed
from cuda_on_cpu.emulator import torch_cuda
from kernel_harness.core.status import Status

FACTORIES = {
    "empty": lambda: torch.empty(2, 3, device="cuda"), "zeros": lambda: torch.zeros(2, 3, device="cuda:0"),
    "full": lambda: torch.full((2, 3), 7.0, device="cuda"), "arange": lambda: torch.arange(6, device="cuda"),
    "eye": lambda: torch.eye(3, device=torch.device("cuda")), "tensor": lambda: torch.tensor([1.0, 2.0], device="cuda"),
    "randn": lambda: torch.randn(2, 3, device="cuda", dtype=torch.float16),
    "randint": lambda: torch.randint(0, 5, (4,), device="cuda"), "linspace": lambda: torch.linspace(0, 1, 5, device=0),
    "randperm": lambda: torch.randperm(9, device="cuda"), "as_tensor": lambda: torch.as_tensor([3], device="cuda"),
    "module": lambda: torch.nn.Linear(3, 2, device="cuda").weight,
}  # fmt: skip


@emulated
@pytest.mark.parametrize("name", list(FACTORIES))
def test_every_factory_takes_the_device(name):
    made = FACTORIES[name]()
    assert made.is_cuda and made.device == torch.device("cuda:0") and made.get_device() == 0


@emulated
def test_the_default_device_can_be_the_gpu():
    torch.set_default_device("cuda")
    assert torch.ones(2).is_cuda
    with torch.device("cuda"):
        assert torch.zeros(2).is_cuda
    assert torch.ones(2, device="cpu").device.type == "cpu"


QUESTIONS = {
    "is_available": True, "device_count": 1, "current_device": 0, "is_initialized": True, "is_bf16_supported": True,
    "get_device_capability": (9, 0), "memory_allocated": 0, "is_current_stream_capturing": False,
}  # fmt: skip


@emulated
@pytest.mark.parametrize("name", list(QUESTIONS))
def test_torch_cuda_answers_what_is_asked_at_the_head_of_a_file(name):
    assert getattr(torch.cuda, name)() == QUESTIONS[name]


@emulated
def test_the_version_and_the_properties_are_those_of_a_cuda_machine():
    assert torch.version.cuda.startswith("13") and torch.backends.cuda.is_built()
    properties = torch.cuda.get_device_properties("cuda")
    assert properties.multi_processor_count > 0 and properties.total_memory > 2**30 and properties.name
    assert torch.cuda.get_device_name(0) == properties.name


@emulated
def test_streams_events_and_markers_are_used_as_usual():
    x, stream = torch.ones(3).cuda(non_blocking=True), torch.cuda.Stream()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.nvtx.range_push("work")
    with torch.cuda.device(0), torch.cuda.stream(stream):
        start.record()
        y = x * 2
        end.record(stream)
        y.record_stream(stream)
    torch.cuda.nvtx.range_pop()
    torch.cuda.current_stream().wait_event(end)
    torch.cuda.synchronize()
    assert start.elapsed_time(end) >= 0 and y.tolist() == [2, 2, 2]


@emulated
def test_a_stream_that_is_entered_twice_gives_back_the_stream_before():
    before, stream = torch.cuda.current_stream(), torch.cuda.Stream()
    with stream:
        with stream:
            assert torch.cuda.current_stream() is stream
        assert torch.cuda.current_stream() is stream
    assert torch.cuda.current_stream() is before


def saved_and_loaded(x: torch.Tensor, **keywords: object) -> torch.Tensor:
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    return torch.load(file, **keywords)


COPIES = {
    "torch.save": saved_and_loaded, "pickle": lambda x: pickle.loads(pickle.dumps(x)), "deepcopy": copy.deepcopy,
    "from the host": lambda x: saved_and_loaded(x.cpu(), map_location="cuda"),
}  # fmt: skip


@emulated
@pytest.mark.parametrize("name", list(COPIES))
def test_a_tensor_is_saved_and_copied_with_its_device(name):
    x = torch.arange(12.0).reshape(3, 4).cuda().t()[1:]
    out = COPIES[name](x)
    assert out.is_cuda and out.data_ptr() != x.data_ptr() and torch.equal(out, x)
    out.add_(1)
    assert torch.equal(out, x + 1)


@emulated
def test_a_tensor_of_the_device_is_loaded_onto_the_host():
    x = torch.arange(3.0).cuda()
    assert saved_and_loaded(x, map_location="cpu").device.type == "cpu"


@emulated
def test_what_shares_memory_shares_it_when_copied_together():
    x = torch.zeros(2, 3).cuda()
    whole, row = copy.deepcopy([x, x[1]])
    row.fill_(7)
    assert whole.tolist() == [[0, 0, 0], [7, 7, 7]] and not x.any()


@emulated
def test_a_tensor_is_given_another_s_memory():
    x, y = torch.arange(4.0).cuda(), torch.empty(0, device="cuda")
    y.set_(x)
    assert y.data_ptr() == x.data_ptr() and y.tolist() == [0, 1, 2, 3]
    y.set_(x.untyped_storage(), 1, (2,), (2,))
    assert y.tolist() == [1, 3]
    with pytest.raises(RuntimeError, match="devices must match"):
        y.set_(x.cpu())
    y.set_()
    assert y.is_cuda and y.numel() == 0


@emulated
def test_a_model_s_state_is_saved_and_loaded():
    model, file = torch.nn.Linear(3, 2).cuda(), io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = torch.nn.Linear(3, 2).cuda()
    other.load_state_dict(torch.load(file))
    assert torch.equal(other.weight, model.weight) and other.bias.is_cuda


@emulated
def test_the_device_sleeps_for_as_many_cycles_as_are_asked_for():
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    torch.cuda._sleep(20_000_000)  # at 1 GHz
    end.record()
    assert start.elapsed_time(end) >= 20


OPERATORS = {
    "a transpose": lambda x: x.t(), "a slice": lambda x: x[1:], "parts": lambda x: x.unbind()[1],
    "a view of a view": lambda x: x.view(-1)[2:], "a detached tensor": lambda x: x.detach(),
    "a reshaped copy": lambda x: x.t().reshape(-1), "a sum": lambda x: x + 1, "a copy": lambda x: x.clone(),
    "another type": lambda x: x.to(torch.float16), "a change in place": lambda x: x.add_(1),
    "a change of a view": lambda x: x[0].mul_(2), "an output argument": lambda x: torch.add(x, 1, out=x),
}  # fmt: skip


@emulated
@pytest.mark.parametrize("name", list(OPERATORS))
def test_inference_mode_means_what_it_means_on_the_host(name):
    def outcome(device, made_there, called_there):
        with torch.inference_mode(made_there):
            x = torch.arange(6.0, device=device).view(2, 3)
        try:
            with torch.inference_mode(called_there), torch.no_grad():
                y = OPERATORS[name](x)
        except RuntimeError as error:
            return str(error)
        versions = [None if each.is_inference() else each._version for each in (x, y)]
        return y.tolist(), x.tolist(), y.is_inference(), versions

    for modes in itertools.product([False, True], repeat=2):
        assert outcome("cuda", *modes) == outcome("cpu", *modes)


COMPILED = {
    "a function": lambda f: torch.compile(f), "a decorator": lambda f: torch.compile(dynamic=False)(f),
    "a mode": lambda f: torch.compile(f, mode="max-autotune"),
    "options": lambda f: torch.compile(f, options={"triton.cudagraphs": True}),
    "a whole graph": lambda f: torch.compile(f, backend="inductor", fullgraph=True),
    "another backend": lambda f: torch.compile(f, backend="eager"),
}  # fmt: skip


@emulated
@pytest.mark.parametrize("name", list(COMPILED))
def test_torch_compile_runs_without_a_gpu_and_triton(name):
    compiled = COMPILED[name](lambda x: torch.relu(x @ x.t()) + 1)
    for size in (3, 5):
        x = torch.randn(size, 4, device="cuda")
        assert torch.equal(compiled(x), torch.relu(x @ x.t()) + 1)


@emulated
def test_a_model_is_compiled_in_place():
    model, x = torch.nn.Linear(3, 2).cuda(), torch.ones(4, 3, device="cuda")
    expected = model(x)
    model.compile()
    assert torch.equal(model(x), expected)


LIBRARY = r"""
__global__ void doubled(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }

torch::Tensor twice(torch::Tensor x) {
    auto out = x.clone();
    doubled<<<1, 32>>>(out.data_ptr<float>(), out.numel());
    return out;
}

TORCH_LIBRARY_FRAGMENT(seen, library) {
    library.def("twice(Tensor x) -> Tensor");
    library.impl("twice", torch::kCUDA, &twice);
}
"""


def operators(**keywords):
    file = Path("operators.cu")
    file.write_text(LIBRARY)
    keywords = {"cpp_sources": "", "cuda_sources": LIBRARY, "is_python_module": False, **keywords}
    return load_inline(file, name="operators", **keywords)


@emulated
def test_a_library_that_is_no_python_module_adds_operators_and_its_path_is_returned():
    path = operators()
    assert Path(path).is_file() and path in torch.ops.loaded_libraries
    assert torch.ops.seen.twice(torch.arange(3.0).cuda()).tolist() == [0, 2, 4]
    assert operators() == path


@emulated
def test_an_operator_without_its_function_is_a_failed_build():
    with pytest.raises(BuildFailed, match="twice"):
        operators(cpp_sources="torch::Tensor twice(torch::Tensor x);", cuda_sources=LIBRARY[LIBRARY.index("TORCH") :])


@emulated
def test_skipped_kernels_write_nothing_until_they_run_again():
    operators()
    x = torch.ones(3).cuda()
    before = torch_cuda.launches()
    torch_cuda.skip_kernels(True)
    assert torch.ops.seen.twice(x).tolist() == [1, 1, 1] and torch_cuda.launches() == before + 1
    with pytest.raises(RuntimeError, match="too many launches"):
        while True:
            torch.ops.seen.twice(x)
    torch_cuda.skip_kernels(False)
    assert torch.ops.seen.twice(x).tolist() == [2, 2, 2]


NN = torch.nn
LAYERS = {
    "Conv1d": lambda: (NN.Conv1d(6, 12, 3, padding=1, groups=6), [torch.randn(2, 6, 9)]),
    "Conv2d": lambda: (NN.Conv2d(6, 6, (3, 5), stride=2, dilation=2, groups=6, bias=False), [torch.randn(2, 6, 9, 13)]),
    "Conv3d": lambda: (NN.Conv3d(4, 8, 3, padding=2, groups=4), [torch.randn(2, 4, 5, 6, 7)]),
    "LSTM": lambda: (NN.LSTM(5, 7, 2, bidirectional=True), [torch.randn(3, 2, 5)]),
    "LSTM without bias": lambda: (NN.LSTM(5, 7, bias=False, proj_size=3), [torch.randn(3, 2, 5)]),
    "LSTMCell": lambda: (NN.LSTMCell(5, 7), [torch.randn(2, 5), (torch.randn(2, 7), torch.randn(2, 7))]),
    "GRU": lambda: (NN.GRU(5, 7, 2, batch_first=True, bidirectional=True), [torch.randn(2, 3, 5)]),
    "GRU without bias": lambda: (NN.GRU(5, 7, bias=False), [torch.randn(3, 2, 5)]),
    "GRUCell": lambda: (NN.GRUCell(5, 7), [torch.randn(2, 5), torch.randn(2, 7)]),
    "CTCLoss": lambda: (NN.CTCLoss(), [torch.randn(8, 2, 5).log_softmax(2), torch.ones(2, 3, dtype=torch.int32),
                                       torch.tensor([8, 7]), torch.tensor([3, 2])]),
    "attention": lambda: (NN.MultiheadAttention(8, 2), [torch.randn(4, 3, 8)] * 3),
    "encoder": lambda: (NN.TransformerEncoderLayer(8, 2, 16).eval(), [torch.randn(4, 3, 8)]),
}  # fmt: skip


@emulated
@pytest.mark.parametrize("name", list(LAYERS))
def test_layers_for_which_torch_has_operators_for_cuda_alone_give_the_answer_of_the_cpu(name):
    model, inputs = LAYERS[name]()
    with torch.no_grad():
        expected = pytree.tree_leaves(model(*inputs))
        found = pytree.tree_leaves(model.cuda()(*pytree.tree_map(lambda x: x.cuda(), inputs)))
    assert all(each.is_cuda for each in found)
    torch.testing.assert_close([each.cpu() for each in found], expected)


TRACED = {
    **{name: LAYERS[name] for name in ("Conv1d", "Conv2d", "Conv3d", "LSTM", "GRU", "encoder")},
    "ConvTranspose2d": lambda: (NN.ConvTranspose2d(6, 4, 3, stride=2, output_padding=1), [torch.randn(2, 6, 9, 13)]),
    "image": lambda: (
        NN.Sequential(NN.Conv2d(3, 6, 3), NN.BatchNorm2d(6), NN.ReLU(), NN.AvgPool2d(2), NN.Flatten(), NN.Linear(96, 5))
        .eval(), [torch.randn(2, 3, 10, 10)],
    ),
}  # fmt: skip


@emulated
@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", list(TRACED))
def test_a_traced_layer_computes_from_the_inputs_of_each_call(name, inference):
    model, inputs = TRACED[name]()
    model, inputs = model.cuda().eval(), [x.cuda() for x in inputs]
    with torch.no_grad():
        traced = torch.jit.trace(model, tuple(inputs))
        traced = torch.jit.optimize_for_inference(traced) if inference else traced
        others = [torch.randn_like(x) for x in inputs]
        for given in (inputs, others, inputs):
            found, wanted = (pytree.tree_leaves(each(*given)) for each in (traced, model))
            torch.testing.assert_close(found, wanted)


PRODUCTS = {
    "mm": ((2, 3), (3, 4)), "bmm": ((5, 2, 3), (5, 3, 4)), "addmm": ((2, 4), (2, 3), (3, 4)),
    "baddbmm": ((5, 2, 4), (5, 2, 3), (5, 3, 4)),
}  # fmt: skip


@emulated
@pytest.mark.parametrize("name", list(PRODUCTS))
def test_a_product_of_half_precision_can_have_a_float32_output(name):
    product, inputs = getattr(torch, name), [torch.randn(shape).half() for shape in PRODUCTS[name]]
    out = product(*(x.cuda() for x in inputs), out_dtype=torch.float32)
    torch.testing.assert_close(out.cpu(), product(*(x.float() for x in inputs)))


@emulated
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_a_mean_over_three_dimensions_takes_numbers_of_16_bits(name):
    dtype = getattr(torch, name)
    x = torch.randn(2, 3, 5, 6, 7).to(dtype)
    pooled = torch.nn.functional.avg_pool3d(x.cuda(), 2, padding=1)
    normalized = torch.nn.functional.local_response_norm(x[:, :, 0].cuda(), 2)
    assert pooled.dtype is normalized.dtype is dtype and pooled.is_cuda
    torch.testing.assert_close(pooled.cpu(), torch.nn.functional.avg_pool3d(x.float(), 2, padding=1).to(dtype))


@emulated
@pytest.mark.parametrize("function", ["softmax", "log_softmax"])
def test_a_softmax_of_half_precision_can_be_computed_in_float32(function):
    x, of = torch.randn(3, 5).half(), getattr(torch, function)
    torch.testing.assert_close(of(x.cuda(), 1, dtype=torch.float32).cpu(), of(x.float(), 1))


CPP = r"""
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/extension.h>

#define CHECK_CUDA(x) TORCH_CHECK(x.device().is_cuda(), #x " must be a CUDA tensor")
#define CHECK_CONTIGUOUS(x) TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")
#define CHECK_INPUT(x) CHECK_CUDA(x); CHECK_CONTIGUOUS(x)

std::vector<int64_t> seen(torch::Tensor x, torch::Tensor host) {
    const at::cuda::OptionalCUDAGuard guard(at::device_of(x));
    CHECK_INPUT(x);
    auto options = torch::TensorOptions().dtype(torch::kFloat32).device(torch::kCUDA, 0);
    auto by_index = torch::zeros({2}, options), like = torch::empty_like(x);
    auto by_string = torch::ones({2}, torch::Device("cuda:0"));
    auto moved = host.to(torch::kCUDA), back = x.to(torch::kCPU), same = host.to(x.device());
    AT_ASSERTM(moved.type().is_cuda(), "moved");
    return {x.is_cuda(), x.device().is_cuda(), x.device().type() == torch::kCUDA,
            x.get_device() == 0, x.device().index() == 0,
            by_index.is_cuda(), like.is_cuda(), by_string.is_cuda(), moved.is_cuda(), !back.is_cuda(), same.is_cuda(),
            x.options().device().is_cuda(), at::cuda::is_available() ? 1 : 0};
}
"""


@emulated
def test_cpp_sees_devices_as_python_does():
    ops = built()
    assert ops.seen(torch.ones(3).cuda(), torch.ones(3)) == [1] * 13


@emulated
def test_the_usual_checks_refuse_what_is_on_the_host_or_not_contiguous():
    ops, x = built(), torch.ones(3, 2)
    with pytest.raises(RuntimeError, match="x must be a CUDA tensor"):
        ops.seen(x, x)
    with pytest.raises(RuntimeError, match="x must be contiguous"):
        ops.seen(x.cuda().t(), x)


def built():
    file = Path("seen.cu")
    file.write_text(CPP)
    declaration = "std::vector<int64_t> seen(torch::Tensor x, torch::Tensor host);"
    return load_inline(file, name="seen", cpp_sources=declaration, cuda_sources=CPP, functions=["seen"])


@emulated
def test_pinned_memory_is_a_copy():
    host = torch.ones(3)
    pinned = host.pin_memory()
    pinned += 1
    assert pinned.cuda(non_blocking=True).tolist() == [2, 2, 2]
    assert host.tolist() == [1, 1, 1]


LACKING = {
    "a pool of memory": "torch.cuda.MemPool()",
    "an allocator": "torch.empty(3, pin_memory=True)",
    "an old name": "torch.cuda.FloatTensor(4)",
    "a compiler at run time": "torch.cuda._compile_kernel('__global__ void k() {}', 'k')",
    "a sparse product": "torch.sparse.mm(A.to_sparse_csr(), B)",
    "a call for any accelerator": "torch.accelerator.synchronize()",
    "a build of two files": "open('a.cu', 'w'), open('b.cu', 'w'), cpp_extension.load('k', ['a.cu', 'b.cu'])",
}


@pytest.mark.parametrize("expression", LACKING.values(), ids=LACKING)
def test_what_only_a_real_gpu_has_is_unsupported_and_has_its_line(expression):
    """A GPU would run it, so it is no error of the candidate."""
    head = "import torch\nfrom torch.utils import cpp_extension\n\nclass ModelNew(torch.nn.Module):\n"
    forward = f"    def forward(self, A, B):\n        {expression}\n        return A.t() @ B.t()\n"
    result = kernel_harness.evaluate("matmul_tt", head + forward, device="cpu")
    assert result.status is Status.UNSUPPORTED
    assert ":6: the emulation lacks this part of torch.cuda: " in result.reason
