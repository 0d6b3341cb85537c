"""Timed calls on a GPU: the judge's clock beside the device's. Everything here is skipped where there is no GPU."""

from __future__ import annotations

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
    assert 0.99 < told(results["waits"]) < 1.1


@pytest.mark.parametrize("name", ["not joined", "does not wait for the inputs"])
def test_kernels_in_a_stream_of_their_own_are_timed_by_the_judge(name: str, results: dict[str, Result]) -> None:
    measurement = results[name].measurement
    assert measurement is not None and measurement.unordered
    assert told(results[name]) > 0.95


SHORT = """
import gc
import torch

from kernel_harness.ipc.gate import Word

CYCLES = 100_000  # 50 us on an H200


class ModelNew(torch.nn.Module):
    stream = hold = None

    def forward(self, x):
        self.stream = self.stream or torch.cuda.Stream()
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
NOT_JOINED = """
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            torch.cuda._sleep(CYCLES)
            torch.add(x, 1, out=out)
"""
DONE_EARLY = """
        self.hold = self.hold or next((o for o in gc.get_objects() if type(o).__name__ == "AtGate"), None)
        if self.hold is not None:
            self.hold._words.write(Word.DONE)
"""
SHORT_BODIES = {"honest": SPIN, "not joined": NOT_JOINED, "done early": DONE_EARLY + SPIN}


@pytest.fixture(scope="module")
def short_results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    path = tmp_path_factory.mktemp("spin") / "spin.py"
    path.write_text(SHORT.format(body=SPIN))
    return judged(path, {name: SHORT.format(body=body) for name, body in SHORT_BODIES.items()}, budget_s=8)


@pytest.mark.parametrize("name", SHORT_BODIES)
def test_a_short_call_that_says_early_that_it_is_done_is_no_shorter(
    name: str, short_results: dict[str, Result]
) -> None:
    """The word that a call is done takes microseconds, which an early word would save."""
    assert told(short_results[name]) > 0.95
