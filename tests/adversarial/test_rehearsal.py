"""The CUDA device's own code over the emulated device. Its times mean nothing; `test_gpu` runs on a GPU."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from support import cheats, forked_command
from support.cheats import CHEATS, HONEST, as_parameters
from support.command import ROOT

pytestmark = pytest.mark.slow

# Runs in a process of its own, since torch keeps the emulated CUDA device from then on.
SCRIPT = """
import json, os, sys, time
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, str(Path()))
from cuda_on_cpu.compile import cache
from kernel_harness.checking import reference_runs
from kernel_harness.problem import lookup as find
from kernel_harness.workers.model_process import ModelProcess
from kernel_harness.problem.candidate import Candidate
from tests.support.product import PROBLEM, RIGHT
from tests.support.rehearsal import Rehearsal
from kernel_harness.workers.faults import Fault
from kernel_harness.session.run import SilentObserver
from kernel_harness.session import summary
from kernel_harness.session.session import Session
from kernel_harness.results.record import to_line
from kernel_harness.session.settings import Settings
from kernel_harness.core.status import Status
from kernel_harness.timing import rounds
from kernel_harness.timing.one_round import OneRound

summary.HARDLY_VERIFIED = float("inf")  # times of a busy CPU scatter
if len(sys.argv) > 4:
    rounds._AS_CALLED_ROUNDS = 0  # with many candidates they would take a minute
# The emulated device's libraries have the same keys, so each is built for both of them once.
get_or_build = cache.get_or_build
cache.get_or_build = lambda kind, *rest, **more: get_or_build(
    kind.replace("tests.support.rehearsal", "cpu"), *rest, **more
)
# While a call runs, the judge waits without sleeping, which on a GPU makes its clock exact. Here it would take a core.
os.sched_yield = lambda: time.sleep(1e-4)
Rehearsal.policy = replace(Rehearsal.policy, most_warmup=4)  # times that mean nothing never become steady
torch_starts_again = sys.argv[1] != "torch does not"
if sys.argv[1] == "short of memory":
    reference_runs._AMPLE = 1 << 40
if sys.argv[1] == "short calls":
    Rehearsal.policy = replace(Rehearsal.policy, many_calls_below_ms=1e9)
calls, counts = OneRound._calls, []

def counted(self, arm, sets):
    made = calls(self, arm, sets)
    if made:
        different = len({tuple(each.packed.tensors[0].flatten().tolist()) for each in sets})
        kept_outputs = sum(bool(answer.outputs) for answer in made)
        counts.append((arm.name, len(self.cohort.warmup), len(made), different, kept_outputs))
    return made

OneRound._calls = counted
if not sys.argv[3:]:
    # Two processes of a kernel may differ by so much that each is replaced.
    Rehearsal.policy = replace(Rehearsal.policy, resolution_ms=1.0)
restart = ModelProcess.restart

def another_process(model, *first):
    again = model.client is not None
    if again and model.source.class_name == "Model" and not torch_starts_again:
        raise Fault(Status.RUNTIME_ERROR, "CUDA out of memory")
    restart(model, *first)

ModelProcess.restart = another_process
sources = {
    "right": RIGHT,
    "for one shape": RIGHT.replace("return", "if A.shape[1] != 32: raise ValueError('only M=32')\\n        return"),
    "wrong when timed": RIGHT.replace("return", "self.n = getattr(self, 'n', 0) + 1; return (self.n < 6) *"),
}
count, *files = sys.argv[2:]
with Session(PROBLEM, Rehearsal(), Settings(rounds=int(count)), SilentObserver(), hidden=[Path("results")]) as session:
    candidates = [Candidate(name, Path(f"{name}.py"), source) for name, source in sources.items()]
    if files:
        candidates = find.kernels(files, PROBLEM.name, Path())
    for result in session.judge(candidates, lambda result: None):
        print(to_line(result))
print(json.dumps({"kernel": "counts", "counts": counts}))
"""


def rehearsed(how: str, rounds: int, *files: Path) -> dict[str, dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "rehearsed.py"
        script.write_text(SCRIPT)
        done = forked_command.run(script, [how, str(rounds), *files], ROOT)
    assert done.returncode == 0, done.stderr
    return {record["kernel"]: record for record in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    return rehearsed("torch starts again", 24)


@pytest.mark.parametrize("name", ["right", "for one shape", "torch"])
def test_calls_are_right_and_timed_by_both_clocks_in_several_processes(
    name: str, found: dict[str, dict[str, Any]]
) -> None:
    record = found[name]
    measured = record["measurement"]

    assert record["status"] == "PASSED", record["reason"]
    assert measured["processes"] == 3
    assert len(measured["own_clock_ms"]) == 24
    assert all(
        0 < own < by_judge for own, by_judge in zip(measured["own_clock_ms"], measured["brackets_ms"], strict=True)
    )
    assert not measured["waits_for_the_device"]


@pytest.mark.parametrize("name", ["right", "for one shape", "torch"])
def test_calls_are_also_timed_with_launch_latency(name: str, found: dict[str, dict[str, Any]]) -> None:
    as_called = found[name]["as_called"]

    assert len(as_called["samples_ms"]) == 6 and as_called["time"]["estimate"] > 0
    assert as_called["speedup"]["estimate"] > 0


def test_every_call_of_the_first_rounds_is_audited_on_the_inputs_that_were_masked(
    found: dict[str, dict[str, Any]],
) -> None:
    measured = found["right"]["measurement"]

    assert measured["audits"] >= 2 * (24 + len(measured["warmup_ms"]))


def test_a_wrong_answer_of_a_timed_call_is_a_failure(found: dict[str, dict[str, Any]]) -> None:
    assert found["wrong when timed"]["status"] == "WRONG_VALUES"
    assert "timed call" in found["wrong when timed"]["reason"]


def test_a_candidate_for_one_shape_is_timed_after_its_launches_are_counted(
    found: dict[str, dict[str, Any]],
) -> None:
    assert found["for one shape"]["restricted_to"] and found["for one shape"]["timing"]


def test_the_rounds_before_torch_failed_to_start_again_count() -> None:
    found = rehearsed("torch does not", 24)

    assert found["torch"]["timing"] is None and found["right"]["status"] == "PASSED"
    assert len(found["right"]["timing"]["samples_ms"]) == 8
    assert found["right"]["measurement"]["processes"] == 2


def test_a_device_that_is_short_of_memory_gives_the_same_verdicts() -> None:
    found = rehearsed("short of memory", 4)

    assert found["right"]["status"] == found["for one shape"]["status"] == found["torch"]["status"] == "PASSED"
    assert found["wrong when timed"]["status"] == "WRONG_VALUES"
    assert found["right"]["measurement"]["audits"] > 0


def test_short_calls_are_made_several_times_in_a_round_on_different_inputs() -> None:
    """One of them, which no candidate can know, is compared with the right answer."""
    found = rehearsed("short calls", 4)

    assert found["right"]["status"] == found["for one shape"]["status"] == found["torch"]["status"] == "PASSED"
    assert found["wrong when timed"]["status"] == "WRONG_VALUES"
    measured = found["right"]["measurement"]
    assert len(measured["own_clock_ms"]) == 4 and all(map(all, (measured["own_clock_ms"], measured["brackets_ms"])))
    later = [rest for name, warmup, *rest in found["counts"]["counts"] if warmup and name == "right"]
    assert len(later) > 4 and later == [[4, 4, 1]] * len(later)


EDITS = """
import sys
import torch

def repeats():
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "_repeat":
        frame = frame.f_back
    return frame is not None

class ModelNew(torch.nn.Module):
    calls = 0

    def forward(self, A, B):
        answer = torch.matmul(A.T, B.T)
        self.calls += 1
        if {condition}:
            A.zero_()
        return answer
"""


@pytest.mark.parametrize("condition", ["self.calls > 16 and self.calls % 4 == 0", "repeats()"], ids=["one", "warm"])
def test_a_write_in_any_of_several_calls_of_a_round_or_in_the_warm_one_is_found(condition: str, tmp_path: Path) -> None:
    kernel = tmp_path / "edits.py"
    kernel.write_text(EDITS.format(condition=condition))
    found = rehearsed("short calls", 4, kernel)["edits"]

    assert found["status"] == "MUTATED_INPUT" and "A timed call wrote" in found["reason"]


KNOWS_THE_HOLD = """
import sys
import torch

def is_held():
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "timed":
        frame = frame.f_back
    return frame is None or frame.f_locals.get("hold", frame) is not None

class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T) if is_held() else torch.zeros(A.shape[1], B.shape[0])
"""


def test_a_wrong_answer_of_calls_with_launch_latency_is_a_failure(tmp_path: Path) -> None:
    kernel = tmp_path / "knows.py"
    kernel.write_text(KNOWS_THE_HOLD)
    found = rehearsed("torch starts again", 4, kernel)["knows"]

    assert found["status"] == "WRONG_VALUES" and "timed call" in found["reason"]


# ----------------------------------------------------------------------------------------------------- cheats


# test_cheats judges all candidates. The layers that catch the others run before or behind the code of a device.
DEVICE_DEPENDENT = [path for path in [*CHEATS, *HONEST] if cheats.wanted(path).depends_on_the_device]


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    """The candidates of DEVICE_DEPENDENT, in the least rounds that a GPU's budget can end with.

    On a busy machine a forged time is only certain after more rounds.
    """
    timed = [path for path in DEVICE_DEPENDENT if cheats.wanted(path).takes_ms]
    others = [path for path in DEVICE_DEPENDENT if path not in timed]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNEL_HARNESS_TEST_SECRET", "a user's")
        return rehearsed("torch starts again", 8, *others) | rehearsed("torch starts again", 32, *timed)


@pytest.mark.parametrize("path", as_parameters(DEVICE_DEPENDENT))
def test_the_cuda_device_s_code_gives_the_same_verdict(path: Path, results: dict[str, dict[str, Any]]) -> None:
    assert not cheats.wanted(path).mistake(results[path.stem])


@pytest.mark.parametrize("layer", cheats.LAYERS_OF_A_DEVICE)
def test_every_layer_of_a_device_has_a_cheat_that_it_catches(layer: str) -> None:
    assert layer in {cheats.wanted(path).layer for path in cheats.files("cheats")}
