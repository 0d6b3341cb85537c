"""Builds that begin before their candidate is judged, on the emulated device."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.command import until
from support.suites import PROBLEM, write

from kernel_harness.core.status import Status
from kernel_harness.device.cpu import Emulated
from kernel_harness.problem import problem as problems
from kernel_harness.problem.candidate import Candidate
from kernel_harness.results.record import Result
from kernel_harness.session.run import RunContext, SilentObserver
from kernel_harness.session.session import Session
from kernel_harness.session.settings import Settings
from kernel_harness.workers.builder import BuildService
from kernel_harness.workers.faults import Fault
from kernel_harness.workers.worker_client import WorkerClient

pytestmark = pytest.mark.slow
SOURCE = """
import torch
from torch.utils.cpp_extension import load_inline

CUDA = r'''
#include <torch/extension.h>
__global__ void twice_relu(const float* x, float* y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = {factor} * fmaxf(x[i], 0.f);
}}
torch::Tensor forward(torch::Tensor x) {{
    auto y = torch::empty_like(x);
    twice_relu<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}}
'''


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {constructor}

    def forward(self, x):
        return self.ops.forward(x) if self.ops else 2 * torch.relu(x)
"""
BUILDS = 'self.ops = load_inline("k", "torch::Tensor forward(torch::Tensor x);", CUDA, functions=["forward"])'
FALLS_BACK = f"""try:
            {BUILDS}
        except Exception:
            self.ops = None"""


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    write(tmp_path, {"p.py": PROBLEM.format(factor=2)})
    problem = problems.load("p", tmp_path / "p.py").on(emulated=True)
    with Session(problem, Emulated(), Settings(rounds=1, jobs=1), SilentObserver()) as made:
        yield made


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests to compile that were sent so far."""
    requests: list[Any] = []
    ask = BuildService._ask

    def noted(service: BuildService, request: Any, timeout_s: float) -> Any:
        if request.device == "cpu":  # the sanitizer builds a candidate that passed, too
            requests.append(request)
        return ask(service, request, timeout_s)

    monkeypatch.setattr(BuildService, "_ask", noted)
    return requests


def judged(session: Session, source: str, compiled: list[Any]) -> tuple[Result, int]:
    """The result of a candidate that was built ahead, and the number of requests to compile before it was judged."""
    candidate = Candidate("c", Path("c.py"), source)
    session.build_ahead(candidate)
    until(lambda: session.is_built(candidate), "the build has ended", 300)
    before = len(compiled)
    return session.judge_one(candidate)[0], before


def test_what_a_constructor_builds_is_built_before_the_candidate_is_judged(
    session: Session, compiled: list[Any]
) -> None:
    source = SOURCE.format(factor=f"({time.time_ns()}ll > 0 ? 2.f : 0.f)", constructor=BUILDS)  # not in the cache
    result, before = judged(session, source, compiled)

    assert result.status is Status.PASSED and result.builds and all(build.cached for build in result.builds)
    assert len(compiled) == before == 1


def test_a_constructor_s_build_that_fails_is_not_tried_again(session: Session, compiled: list[Any]) -> None:
    source = SOURCE.format(factor="undeclared", constructor=FALLS_BACK)
    result, before = judged(session, source, compiled)

    assert result.status is Status.PASSED and len(result.builds) > 2  # the model is built for each shape
    assert len(compiled) == before > 0


def test_a_process_that_fails_ahead_is_not_part_of_the_verdict(
    session: Session, compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device has too little memory for a second process of the candidate while others are judged."""
    new_client, count = RunContext.new_client, itertools.count()

    def failing(run: RunContext) -> WorkerClient:
        if next(count) == 1:
            raise Fault(Status.RUNTIME_ERROR, "CUDA out of memory")
        return new_client(run)

    monkeypatch.setattr(RunContext, "new_client", failing)
    source = SOURCE.format(factor="(1.f + 1.f)", constructor=BUILDS)
    result, _ = judged(session, source, compiled)

    assert result.status is Status.PASSED and next(count) > 2


RIGHT = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return 2 * torch.relu(x)\n"


def lacking_memory_beside(monkeypatch: pytest.MonkeyPatch, name: str, other: Callable[[], set[int]]) -> None:
    """Lets the calls of one candidate fail as long as one of the processes `other` lives, which holds the memory."""
    call = WorkerClient.call

    def failing(client: WorkerClient, *arguments: Any, **options: Any) -> Any:
        if client.file.name.startswith(name) and any(map(psutil.pid_exists, other())):
            raise Fault(Status.RUNTIME_ERROR, "an exception", lacked_memory=True)
        return call(client, *arguments, **options)

    monkeypatch.setattr(WorkerClient, "call", failing)
    monkeypatch.setattr(Emulated, "used_share", lambda device: 0.9 if any(map(psutil.pid_exists, other())) else 0.0)


RAISES = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        raise {error}
"""


@pytest.mark.parametrize("error", ["RuntimeError('CUDA out of memory')", "torch.OutOfMemoryError('out of memory')"])
@pytest.mark.parametrize(
    ("in_use", "with_candidate", "judgements"), [(0.01, 0.0, 1), (0.0, 0.9, 1), (0.4, 0.3, 2), (0.7, 0.0, 2)],
    ids=["there is room", "the candidate alone fills the memory", "others hold a part", "others hold much"],
)  # fmt: skip
def test_what_the_judge_measures_decides_about_a_second_judgement_and_not_the_candidates_words(
    error: str, in_use: float, with_candidate: float, judgements: int, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, dropped = list[WorkerClient](), list[bool]()
    load, free_memory = WorkerClient.load, session.free_memory

    def noting(client: WorkerClient, *arguments: Any, **options: Any) -> None:
        load(client, *arguments, **options)
        if client.file.name == "c.py":
            loaded.append(client)

    def used_share(device: Emulated) -> float:
        return in_use + (with_candidate if loaded and not loaded[-1].closed else 0.0)

    monkeypatch.setattr(WorkerClient, "load", noting)
    monkeypatch.setattr(Emulated, "used_share", used_share)
    monkeypatch.setattr(session, "free_memory", lambda **options: (dropped.append(True), free_memory(**options)))
    (result,) = session.judge_one(Candidate("c", Path("c.py"), RAISES.format(error=error)))

    assert result.status is Status.RUNTIME_ERROR and "out of memory" in result.reason
    assert (len(loaded), len(dropped)) == (judgements, judgements - 1)


def test_a_candidate_that_lacks_memory_is_judged_again_without_the_processes_built_ahead(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, ahead = (Candidate(name, Path(f"{name}.py"), RIGHT) for name in ("large", "ahead"))
    session.build_ahead(ahead)
    until(lambda: session.is_built(ahead), "the build has ended", 300)
    client = session._ahead._started[ahead].client
    assert client is not None
    lacking_memory_beside(monkeypatch, "large", lambda: {client.worker.pid})

    assert session.judge_one(large)[0].status is Status.PASSED
    assert session.is_built(ahead)
    assert session.judge_one(ahead)[0].status is Status.PASSED


def test_a_candidate_that_lacks_memory_beside_others_of_its_run_is_judged_again_alone(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others wait for their timing meanwhile, in processes of their own."""
    first, large, never = (Candidate(name, Path(f"{name}.py"), RIGHT) for name in ("first", "large", "never"))
    started: dict[str, set[int]] = {"first": set(), "never": set()}
    load = WorkerClient.load

    def noting(client: WorkerClient, file: str, *arguments: Any, **options: Any) -> None:
        load(client, file, *arguments, **options)
        started.setdefault(Path(file).stem, set()).add(client.worker.pid)

    monkeypatch.setattr(WorkerClient, "load", noting)
    lacking_memory_beside(monkeypatch, "large", lambda: started["first"])
    lacking_memory_beside(monkeypatch, "never", lambda: {os.getpid()})
    kept: list[Result] = []
    results = session.judge([first, large, never], kept.append)

    own = {result.kernel: result.status for result in results if not result.is_baseline}
    assert own == {"first": Status.PASSED, "large": Status.PASSED, "never": Status.RUNTIME_ERROR}
    assert [result.status for result in kept if result.kernel == "never"] == [Status.RUNTIME_ERROR]
    assert {result.status for result in kept if result.kernel == "large"} == {Status.PASSED}
