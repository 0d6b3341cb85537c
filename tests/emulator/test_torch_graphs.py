"""CUDA graphs of torch under emulation: what a candidate captures runs at each replay, and only there."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from support.emulated_process import emulated, extension, inside  # noqa: F401 - a fixture


def kernels() -> ModuleType:
    return extension("torch_graphs")


class Candidate(torch.nn.Module):
    """Captures at its first call, with static buffers. The flags leave out a step that is needed."""

    def __init__(self, work: Callable[[torch.Tensor], torch.Tensor], *, copies: bool = True, replays: bool = True):
        super().__init__()
        self.work, self.copies, self.replays = work, copies, replays
        self.graph: torch.cuda.CUDAGraph | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.graph is None:
            self.static_input = x.clone()
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                self.work(self.static_input)
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.static_output = self.work(self.static_input)
        if self.copies:
            self.static_input.copy_(x)
        if self.replays:
            self.graph.replay()
        return self.static_output.clone()


def captured(work: Callable[[], object], **keywords: object) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, **keywords):
        work()
    return graph


def check(work: Callable[[torch.Tensor], torch.Tensor]) -> None:
    candidate = Candidate(work)
    for _ in range(3):
        x = torch.randn(6, 8, device="cuda")
        torch.testing.assert_close(candidate(x), work(x))


@emulated
def test_a_replay_computes_the_layers_from_what_is_in_the_static_input():
    layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.LayerNorm(8)).cuda()
    check(lambda x: torch.softmax(layers(x), dim=1).t().contiguous())


@emulated
def test_a_candidate_that_forgets_to_replay_returns_nan():
    assert Candidate(torch.relu, replays=False)(torch.randn(6, device="cuda")).isnan().all()


@emulated
def test_a_candidate_that_does_not_copy_its_input_returns_a_stale_output():
    candidate, first = Candidate(torch.relu, copies=False), torch.randn(6, device="cuda")
    candidate(first)
    assert torch.equal(candidate(torch.randn(6, device="cuda")), first.relu())


IN_PLACE = {
    "in place": lambda x: x.clone().mul_(2).add_(1),
    "a view": lambda x: x.clone().index_fill_(0, torch.zeros(1, dtype=torch.long, device="cuda"), 3)[1:].t(),
    "a part": lambda x: torch.zeros_like(x).view(-1)[3:].copy_(x.view(-1)[3:]),
    "out=": lambda x: torch.add(x, 1, out=torch.empty(0, device="cuda")),
    "a mask": lambda x: x.masked_fill(x > 0, 2.0),
    "two outputs": lambda x: torch.where(x.max(dim=1, keepdim=True).indices > 3, x, -x),
    "turned": lambda x: x.clone().t_().contiguous(),
}  # fmt: skip


@emulated
@pytest.mark.parametrize("how", IN_PLACE)
def test_operators_that_write_to_memory_are_replayed_on_the_same_memory(how):
    check(IN_PLACE[how])


@emulated
def test_indices_need_no_values_before_the_first_replay():
    table, rows = torch.randn(5, 3, device="cuda"), torch.empty(2, dtype=torch.long, device="cuda")
    out: list[torch.Tensor] = []
    graph = captured(lambda: out.append(torch.nn.functional.embedding(rows, table)))
    rows.copy_(torch.tensor([4, 1]))
    graph.replay()
    assert torch.equal(out[0], table[[4, 1]])


@emulated
def test_memory_that_captured_work_changes_is_as_before_until_the_replay():
    total, norm = torch.zeros(3, device="cuda"), torch.nn.BatchNorm1d(3).cuda()
    graph = captured(lambda: (total.add_(1), norm(torch.ones(4, 3, device="cuda"))))
    assert total.tolist() == [0] * 3 and norm.running_mean.tolist() == [0] * 3
    graph.replay()
    graph.replay()
    assert total.tolist() == [2] * 3 and norm.running_mean.tolist() == pytest.approx([0.19] * 3)


@emulated
def test_random_operators_draw_new_numbers_at_each_replay_and_none_at_the_capture():
    torch.manual_seed(1)
    expected = [torch.rand(4, device="cuda") for _ in range(2)]
    torch.manual_seed(1)
    out: list[torch.Tensor] = []
    graph = captured(lambda: out.append(torch.rand(4, device="cuda")))
    for numbers in expected:
        graph.replay()
        assert torch.equal(out[0], numbers)


@emulated
def test_the_graph_keeps_the_memory_that_only_its_kernels_use():
    check(kernels().through_temporary_memory)
    gc.collect()


@emulated
def test_kernels_and_operators_are_replayed_in_their_order_and_count_as_launches():
    from cuda_on_cpu.emulator import torch_cuda

    scaled = kernels().scaled
    candidate = Candidate(lambda x: scaled(scaled(x.exp(), 2).add_(1), 3).log())
    x = torch.randn(100, device="cuda")
    candidate(x)
    before = torch_cuda.launches()
    torch.testing.assert_close(candidate(x), ((x.exp() * 2 + 1) * 3).log())
    assert torch_cuda.launches() == before + 2
    torch_cuda.skip_kernels(True)
    candidate.static_output.fill_(7)
    before = candidate(2 * x)
    torch_cuda.skip_kernels(False)
    assert not torch.allclose(before, candidate(2 * x))


@emulated
def test_a_kernel_in_the_legacy_stream_is_not_captured():
    module = kernels()
    assert Candidate(lambda x: module.scaled_in_the_legacy_stream(x, 2))(torch.ones(6, device="cuda")).isnan().all()


@emulated
def test_a_product_of_cublas_is_captured():
    weight, module = torch.randn(8, 5, device="cuda"), kernels()
    check(lambda x: module.product(x, weight))


@emulated
def test_a_function_of_the_host_is_replayed_in_its_place_and_may_fail():
    """A Triton kernel is captured in this way."""
    from cuda_on_cpu.emulator import torch_graphs

    x, seen = torch.zeros(1, device="cuda"), []

    def work() -> None:
        x.add_(1)
        torch_graphs.record(lambda: seen.append(1 / (3 - x.item())))
        x.add_(1)

    graph = captured(work)
    gc.collect()
    assert not seen
    graph.replay()
    with pytest.raises(ZeroDivisionError):
        graph.replay()
    assert seen == [0.5] and x.item() == 4


NOT_PERMITTED = {
    "item": lambda x: x.sum().item(), "nonzero": lambda x: x.nonzero(), "mask": lambda x: x[x > 0],
    "synchronize": lambda x: torch.cuda.synchronize(), "query": lambda x: torch.cuda.current_stream().query(),
    "extension": lambda x: kernels().synchronize(),
}  # fmt: skip


@emulated
@pytest.mark.parametrize("what", NOT_PERMITTED)
def test_what_waits_for_the_device_breaks_the_capture(what):
    x = torch.ones(3, device="cuda")
    with pytest.raises(RuntimeError, match="operation failed due to a previous error during capture") as caught:
        captured(lambda: NOT_PERMITTED[what](x))
    assert "operation not permitted when stream is capturing" in str(caught.value.__context__)
    assert not torch.cuda.is_current_stream_capturing() and x.sum().item() == 3


@emulated
@pytest.mark.parametrize("what", ["cpu", "tensor"])
def test_a_copy_between_host_and_device_is_refused_during_a_capture(what):
    x = torch.ones(3, device="cuda")
    copies = {"cpu": x.cpu, "tensor": lambda: torch.tensor([1.0], device="cuda")}
    with pytest.raises(RuntimeError, match="unless the CPU tensor is pinned"):
        captured(copies[what])


@emulated
def test_an_error_inside_a_capture_is_raised_and_leaves_memory_as_it_was():
    x = torch.ones(3, device="cuda")

    def work() -> None:
        x.add_(1)
        raise KeyError("of the candidate")

    with pytest.raises(KeyError):
        captured(work)
    assert x.tolist() == [1, 1, 1] and torch.equal(x + 1, torch.full_like(x, 2))


@emulated
def test_calls_in_the_wrong_order_are_refused():
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    with pytest.raises(RuntimeError, match="must be captured on a non-default stream"):
        graph.capture_begin()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin(pool=torch.cuda.graph_pool_handle())
        assert torch.cuda.is_current_stream_capturing()
        with pytest.raises(RuntimeError, match="without a preceding successful capture"):
            graph.replay()
        graph.capture_end()
    graph.replay()
    graph.reset()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()


@emulated
def test_graphed_callables_have_the_gradients_of_the_module():
    layer, x = torch.nn.Linear(8, 4).cuda(), torch.randn(2, 8, device="cuda", requires_grad=True)
    expected = torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])
    graphed = torch.cuda.make_graphed_callables(layer, (torch.randn_like(x).requires_grad_(),))
    found = torch.autograd.grad(graphed(x).square().sum(), [x, *layer.parameters()])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
