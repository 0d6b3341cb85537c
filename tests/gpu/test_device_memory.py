"""Memory of a GPU that the judge shares with a worker. Everything here is skipped where there is no GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support.product import PROBLEM, RIGHT

import kernel_harness
from kernel_harness.core.status import Status
from kernel_harness.device import device_memory
from kernel_harness.device.cuda import Cuda
from kernel_harness.ipc.packed import pack
from kernel_harness.workers.fork_server import ForkServer
from kernel_harness.workers.gated_call import Timed
from kernel_harness.workers.process import Limits
from kernel_harness.workers.worker_client import WorkerClient

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no NVIDIA GPU on this machine"),
]

TWICE = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        x.add_(x)
        return x + 0
"""


@pytest.fixture(scope="module")
def client() -> Iterator[WorkerClient]:
    Cuda("cuda").prepare()
    with ForkServer() as fork_server:
        fork_server.prepare("cuda")
        made = WorkerClient(fork_server, "cuda", Limits())
        made.load("twice.py", TWICE, "ModelNew")
        made.make(PROBLEM)
        yield made
        made.close()


def test_tensors_stay_on_the_device(client: WorkerClient) -> None:
    packed = pack([torch.rand(1000)], device="cuda")
    answer = client.call(packed)
    (output,), (after,) = answer.outputs, answer.written.after.values()

    assert output.is_cuda and after.is_cuda
    assert torch.equal(output, 2 * packed.tensors[0]) and torch.equal(after, output)
    assert answer.written.beside == ()


def test_inputs_keep_strides_and_gaps_on_the_device(client: WorkerClient) -> None:
    packed = pack([torch.rand(64, 8, device="cuda")[:, 1::2]])
    answer = client.call(packed)

    assert torch.equal(answer.outputs[0], 2 * packed.tensors[0])
    assert torch.equal(answer.written.after[0], answer.outputs[0]) and answer.written.beside == ()


def test_memory_of_large_calls_is_free_again(client: WorkerClient) -> None:
    packed = pack([torch.rand(1 << 30)], device="cuda")
    before, _ = torch.cuda.mem_get_info()
    for _ in range(2):
        client.call(packed)
        client.release_large()
    torch.cuda.empty_cache()
    after, _ = torch.cuda.mem_get_info()

    assert before - after < 1 << 30


def test_a_warm_call_follows_a_call_whose_outputs_needed_more_memory(client: WorkerClient) -> None:
    packed = pack([torch.rand(1 << 26)], device="cuda")
    client.call(packed, timed=Timed(0.1), keep=True)

    assert client.warm(packed)[0].device_ms


def test_where_memory_of_the_device_is_refused_the_hosts_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(device_memory._refused, "cuda:0", "a test")
    result = kernel_harness.evaluate(PROBLEM.path, RIGHT, device="cuda", budget_s=0.5)

    assert result.status is Status.PASSED, result.reason
    assert result.environment["shares"] == "host memory: a test"


LARGE = """
import torch

N = 384 << 20

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)

def get_inputs():
    return [torch.rand(1024, N // 1024)]

def get_init_inputs():
    return []
"""
COPY = f"{LARGE}\nModelNew = Model\n"
# It fills the memory at the second call, so that the right answer to the first one has been computed.
HOARDS = LARGE.replace("class Model", "class ModelNew").replace(
    "        return torch",
    "        self.kept = torch.empty(torch.cuda.mem_get_info()[0] - (5 << 29), dtype=torch.uint8, device='cuda')\n"
    "        return torch",
)


@pytest.fixture(params=[15, 9])
def large(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A problem whose inputs and outputs take 1.6 GB each, on a GPU with so many GB of free memory.

    With 9 GB, the judge keeps inputs and outputs in the host's memory.
    """
    path = tmp_path / "large.py"
    path.write_text(LARGE)
    torch.cuda.empty_cache()
    others = torch.empty(torch.cuda.mem_get_info()[0] - request.param * 10**9, dtype=torch.uint8, device="cuda")
    yield path
    del others
    torch.cuda.empty_cache()


def test_inputs_and_outputs_may_take_a_fifth_of_the_free_memory(large: Path) -> None:
    result = kernel_harness.evaluate(large, COPY, device="cuda", budget_s=0.5)

    assert result.status is Status.PASSED and result.timing, result.reason


def test_zeros_are_wrong_however_little_memory_there_is(large: Path) -> None:
    source = LARGE.replace("class Model", "class ModelNew").replace("torch.softmax(x, dim=1)", "torch.zeros_like(x)")
    result = kernel_harness.evaluate(large, source, device="cuda", budget_s=0.5)

    assert result.status is Status.WRONG_VALUES, result.reason


@pytest.mark.parametrize("large", [30], indirect=True)
def test_a_kernel_that_keeps_the_memory_of_the_device_is_at_fault(large: Path) -> None:
    result = kernel_harness.evaluate(large, HOARDS, device="cuda", budget_s=0.5)

    assert result.status is Status.RUNTIME_ERROR and "memory" in result.reason, result.reason
