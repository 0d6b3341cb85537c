"""Timed calls on a GPU: the judge's clock beside the device's. Everything here is skipped where there is no GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.on_a_gpu import judged

from kernel_harness.core.paths import SHIPPED
from kernel_harness.core.status import Status
from kernel_harness.results.record import Result

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no NVIDIA GPU on this machine"),
]

MODEL = """
import dataclasses

import torch

from kernel_harness.device.cuda import Cuda


class ModelNew(torch.nn.Module):
    stream = None

    def forward(self, A, B):
        self.stream = self.stream or torch.cuda.Stream()
        out = torch.empty(A.shape[1], B.shape[0], device=A.device)
{body}
        return out
"""
PLAIN = "        torch.matmul(A.T, B.T, out=out)"
IN_STREAM = """
        with torch.cuda.stream(self.stream):
            torch.matmul(A.T, B.T, out=out)
"""
WAITING = "        self.stream.wait_stream(torch.cuda.current_stream())" + IN_STREAM
JOINED = WAITING + "        torch.cuda.current_stream().wait_stream(self.stream)"
SCALED = """

honest = Cuda.timed


def forged(self, call, *, hold, cold):
    result, clocked = honest(self, call, hold=hold, cold=cold)
    return result, dataclasses.replace(clocked, device_ms=clocked.device_ms * 0.95)


Cuda.timed = forged
"""
SOURCES = {
    "honest": MODEL.format(body=PLAIN),
    "joined": MODEL.format(body=JOINED),
    "waits": MODEL.format(body=PLAIN + "\n        torch.cuda.synchronize()"),
    "scaled": MODEL.format(body=PLAIN) + SCALED,
    "not joined": MODEL.format(body=WAITING),
    "does not wait for the inputs": MODEL.format(body=IN_STREAM),
}


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    """All candidates in one run at the full size of matmul_tt, where torch takes milliseconds."""
    return judged(SHIPPED / "problems" / "matmul_tt.py", SOURCES, budget_s=10)


def told(result: Result) -> float:
    """The told time as a multiple of torch's, which does the same work."""
    assert result.status is Status.PASSED, result.reason
    assert result.timing is not None and result.timing.speedup is not None
    return 1 / result.timing.speedup.estimate


@pytest.mark.parametrize("name", ["honest", "joined"])
def test_the_device_s_time_of_an_honest_kernel_counts(name: str, results: dict[str, Result]) -> None:
    measurement = results[name].measurement
    assert abs(told(results[name]) - 1) < 0.01
    assert measurement is not None and not measurement.unordered and not measurement.waits_for_the_device


def test_a_device_time_that_is_told_5_percent_too_short_is_corrected(results: dict[str, Result]) -> None:
    assert told(results["scaled"]) > 0.98
    assert "the judge's clock shows that a call takes longer" in results["scaled"].reason


def test_a_call_that_waits_for_the_device_is_known_as_such(results: dict[str, Result]) -> None:
    measurement = results["waits"].measurement
    assert measurement is not None and measurement.waits_for_the_device
    assert 0.99 < told(results["waits"]) < 1.3  # with the launch of a process that was stopped before


def test_kernels_that_are_not_joined_are_timed_by_the_judge(results: dict[str, Result]) -> None:
    measurement = results["not joined"].measurement
    assert measurement is not None and measurement.unordered
    assert told(results["not joined"]) > 0.95


def is_wrong_in_a_timed_call(result: Result) -> bool:
    return result.status is Status.WRONG_VALUES and "The output of a timed call is wrong" in result.reason


def test_kernels_that_race_with_their_inputs_are_wrong_or_timed_by_the_judge(results: dict[str, Result]) -> None:
    """Before the judge has noticed, and awaits the inputs on the host, the race may be lost, and the output wrong."""
    racing = results["does not wait for the inputs"]
    if not is_wrong_in_a_timed_call(racing):
        assert racing.measurement is not None and racing.measurement.unordered
        assert told(racing) > 0.95


SPINNING = """
import gc
import torch
from torch.utils.cpp_extension import load_inline

from kernel_harness.ipc.gate import Word

CYCLES = {cycles}


class ModelNew(torch.nn.Module):
    stream = hold = None

    def forward(self, x):
        self.stream = self.stream or torch.cuda.Stream()
        self.hold = self.hold or next((o for o in gc.get_objects() if type(o).__name__ == "AtGate"), None)
        out = torch.empty_like(x)
{body}
        return out


class Model(ModelNew):
    pass


def get_inputs():
    return [torch.rand(1 << 16)]


def get_init_inputs():
    return []
"""
SPIN = """
        torch.cuda._sleep(CYCLES)
        torch.add(x, 1, out=out)
"""
IN_SIDE_STREAM = """
        with torch.cuda.stream(self.stream):
            torch.cuda._sleep(CYCLES)
            torch.add(x, 1, out=out)
"""
NOT_JOINED = f"""
        self.stream.wait_stream(torch.cuda.current_stream())
{IN_SIDE_STREAM}"""
DONE_EARLY = """
        if self.hold is not None:
            self.hold._words.write(Word.DONE)
"""
# A kernel of a stream that waits for nothing. It begins before the gate opens, polls an input until it is another, or
# the word that opens the gate, and then works.
RESIDENT = '''
CUDA = """
__global__ void work(const float* x, float* y, float* last, const int* word, long long cycles) {{
    long long began = clock64();
    if (threadIdx.x == 0) {{
        const volatile float* first = x;
        while ((word ? !*(const volatile int*)word : *first == last[blockIdx.x]) && clock64() - began < 200000000) {{
        }}
        last[blockIdx.x] = *first;
        long long now = clock64();
        while (clock64() - now < cycles) {{
        }}
    }}
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = ((const volatile float*)x)[i] + 1;
}}
void launch(torch::Tensor x, torch::Tensor y, torch::Tensor last, int64_t word, int64_t cycles) {{
    work<<<64, 1024, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), last.data_ptr<float>(), (const int*)word, cycles);
}}
"""
CPP = "void launch(torch::Tensor x, torch::Tensor y, torch::Tensor last, int64_t word, int64_t cycles);"
library = load_inline("resident", CPP, "#include <ATen/cuda/CUDAContext.h>" + CUDA, functions=["launch"])
last = torch.zeros(64, device="cuda")
'''
POLLING = """
        word = {word}
        with torch.cuda.stream(self.stream):
            library.launch(x, out, last, word, CYCLES)
"""
INPUT, GATE = "0", "self.hold._words._addresses[Word.OPEN] if self.hold else 0"


def source(body: str, us: float, prelude: str = "") -> str:
    return SPINNING.format(body=body, cycles=int(1980 * us)) + prelude.format()


SHORT_BODIES = {
    "honest": source(SPIN, 50),
    "not joined": source(NOT_JOINED, 50),
    "done early": source(DONE_EARLY + SPIN, 50),
    "polls an input": source(POLLING.format(word=INPUT), 50, RESIDENT),
    "polls the gate": source(POLLING.format(word=GATE), 50, RESIDENT),
}


def spun(folder: Path, us: float, sources: dict[str, str]) -> dict[str, Result]:
    path = folder / "spin.py"
    path.write_text(source(SPIN, us))
    return judged(path, sources, budget_s=8)


@pytest.fixture(scope="module")
def short_results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    return spun(tmp_path_factory.mktemp("spin"), 50, SHORT_BODIES)


@pytest.mark.parametrize("name", SHORT_BODIES)
def test_a_short_call_that_works_outside_of_its_bracket_is_no_shorter(
    name: str, short_results: dict[str, Result]
) -> None:
    """The word that a call is done takes microseconds, which an early word would save.

    In a call without a hold, whose outputs the judge copies when that word comes, an early word makes them wrong.
    """
    result = short_results[name]
    assert (name == "done early" and is_wrong_in_a_timed_call(result)) or told(result) > 0.95


def test_a_kernel_that_spins_before_the_gate_opens_is_timed_with_its_spin(tmp_path: Path) -> None:
    result = spun(tmp_path, 2770, {"side stream": source(IN_SIDE_STREAM, 2770)})["side stream"]
    assert told(result) > 0.95
    assert result.measurement is not None and result.measurement.unordered
