"""What CUDA's own code does with candidates, over the emulated device. Its times are nobody's; `test_gpu` has a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from test_cheats import CHEATS, HONEST, cases

from benchmarks import cheats

# In a process of its own: torch has a CUDA device in it from then on.
SCRIPT = """
import json, sys
from pathlib import Path
from kernel_harness import find, problem as problems, series
from kernel_harness.candidate import Candidate
from kernel_harness.cohort import BASELINE
from kernel_harness.device.rehearsal import Rehearsal
from kernel_harness.examine import Fault
from kernel_harness.judge import Nobody, Session
from kernel_harness.results import to_json
from kernel_harness.settings import Settings
from kernel_harness.status import Status

torch_starts_again = sys.argv[1] == "torch starts again"
if not sys.argv[3:]:
    Rehearsal.resolution_ms = 1.0  # so much may processes differ by: each gives way to a new one
start = series._fresh

def fresh(run, held, name):
    if name == BASELINE and not torch_starts_again:
        raise Fault(Status.RUNTIME_ERROR, "CUDA out of memory")
    return start(run, held, name)

series._fresh = fresh
right = '''
import torch

class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)
'''
sources = {
    "right": right,
    "for one shape": right.replace("return", "if A.shape[1] != 32: raise ValueError('only M=32')\\n        return"),
    "wrong when timed": right.replace("return", "self.n = getattr(self, 'n', 0) + 1; return (self.n < 6) *"),
}
rounds, *files = sys.argv[2:]
problem = problems.load("product", Path("tests/candidates/problem/product.py"))
with Session(problem, Rehearsal(), Settings(rounds=int(rounds)), Nobody(), hidden=[Path("results")]) as session:
    candidates = [Candidate(name, Path(f"{name}.py"), source) for name, source in sources.items()]
    if files:
        candidates = find.kernels(files, problem.name, Path())
    for result in session.judge(candidates, lambda result: None):
        print(json.dumps(to_json(result, ""), default=str))
"""


def rehearsed(how: str, rounds: int, *files: Path) -> dict[str, dict[str, Any]]:
    command = [sys.executable, "-c", SCRIPT, how, str(rounds), *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {record["kernel"]: record for record in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Any]]:
    return rehearsed("torch starts again", 24)


@pytest.mark.parametrize("name", ["right", "for one shape", "torch"])
def test_calls_are_right_and_timed_by_both_clocks_in_one_process_after_the_other(
    name: str, found: dict[str, dict[str, Any]]
) -> None:
    record = found[name]
    settings = record["settings"]

    assert record["status"] == "PASSED", record["reason"]
    assert settings["processes"] == 3
    assert len(settings["own_clock_ms"]) == 24
    assert all(
        0 < own < by_judge for own, by_judge in zip(settings["own_clock_ms"], settings["brackets_ms"], strict=True)
    )
    assert not settings["waits_for_the_device"]


def test_all_of_the_first_rounds_are_audited_and_masked_inputs_are_what_the_reference_got(
    found: dict[str, dict[str, Any]],
) -> None:
    settings = found["right"]["settings"]

    assert settings["audits"] >= 2 * (24 + len(settings["warmup_ms"]))


def test_a_wrong_answer_of_a_timed_call_is_seen(found: dict[str, dict[str, Any]]) -> None:
    assert found["wrong when timed"]["status"] == "WRONG_VALUES"
    assert "timed call" in found["wrong when timed"]["reason"]


def test_a_candidate_for_one_shape_is_called_again_after_the_look_at_its_launches(
    found: dict[str, dict[str, Any]],
) -> None:
    assert found["for one shape"]["restricted_to"] and found["for one shape"]["timing"]


def test_where_torch_does_not_start_again_what_was_timed_stands() -> None:
    found = rehearsed("torch does not", 24)

    assert found["torch"]["timing"] is None and found["right"]["status"] == "PASSED"
    assert len(found["right"]["timing"]["samples_ms"]) == 8
    assert found["right"]["settings"]["processes"] == 2


# ----------------------------------------------------------------------------------------------------- cheats


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    """All of them, as in test_cheats. Only in more rounds is it sure, on a busy machine, that a told time is forged."""
    timed = [path for path in CHEATS if cheats.wanted(path).takes_ms]
    others = [path for path in [*CHEATS, *HONEST] if path not in timed]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNEL_HARNESS_TEST_SECRET", "a user's")
        return rehearsed("torch starts again", 12, *others) | rehearsed("torch starts again", 32, *timed)


@pytest.mark.parametrize("path", cases([*CHEATS, *HONEST]))
def test_who_is_judged_by_cuda_s_own_code_gets_the_same_verdict(path: Path, results: dict[str, dict[str, Any]]) -> None:
    assert not cheats.wanted(path).wrong(results[path.stem])
