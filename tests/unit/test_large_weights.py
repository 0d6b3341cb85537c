"""A model whose weights take a second to draw: where they are drawn, how often, and in which order it is checked."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch

from kernel_harness.checking.cases import Reference, plan
from kernel_harness.problem.candidate import Candidate
from kernel_harness.problem.problem import Problem, load
from kernel_harness.trial.trial import Trial
from kernel_harness.workers.fork_server import ForkServer
from kernel_harness.workers.process import Limits
from kernel_harness.workers.worker_client import WorkerClient

SOURCE = """
import torch

batch, features = 16, 8192
drawn = 0


class Model(torch.nn.Module):
    def __init__(self, features):
        global drawn
        super().__init__()
        self.layer = torch.nn.Linear(features, features)
        drawn += not self.layer.weight.is_meta
        print("drawn for", features)

    def forward(self, x):
        return self.layer(x)


def get_inputs():
    return [torch.rand(batch, features)]


def get_init_inputs():
    return [features]
"""


@pytest.fixture
def large(tmp_path: Path) -> Problem:
    path = tmp_path / "large.py"
    path.write_text(SOURCE)
    return load("large", path)


def test_another_thread_draws_weights_once(large: Problem) -> None:
    right = large.new_model().layer.weight
    large.draw_ahead()
    assert torch.equal(large.model("cpu").layer.weight, right) and large.module.drawn == 2
    large.draw_ahead()
    large.model("cpu")
    assert large.module.drawn == 2


def test_small_weights_are_not_drawn_ahead(large: Problem) -> None:
    small = large.at({"features": 512})
    small.draw_ahead()
    assert large.has_large_weights and not small.has_large_weights
    assert small.drawn_models.get(None, lambda: None) == (None, False)


def test_the_cases_of_one_model_follow_each_other_and_those_at_the_timed_shape_come_last(large: Problem) -> None:
    cases = plan(large, 1)
    models = [(case.shape_name, case.random_parameters) for case in cases]
    assert len(dict.fromkeys(models)) == 3 == 1 + sum(a != b for a, b in pairwise(models))
    assert [case.drawn for case in cases[:2]] == [True, True] and cases[2].random_parameters
    assert all(case.timed_shape for case in cases[2:]) and 3072 <= dict(cases[0].shape)["features"] < 4096


def test_a_candidate_builds_each_model_once_and_its_parameters_are_compared(large: Problem, tmp_path: Path) -> None:
    text = SOURCE.replace("class Model(", "class ModelNew(")
    checked = {}
    with ForkServer() as fork_server:
        fork_server.prepare("cpu")
        for name, source in (
            ("alike", text),
            ("other", text.replace("print(", "torch.nn.init.ones_(self.layer.bias); print(")),
        ):
            reference = Reference(large, "cpu", None)
            cases = [case for case in plan(large, 1) if case.drawn or case.distribution in ("own", "parameters")]
            candidate = Candidate(name, tmp_path / f"{name}.py", source)
            trial = Trial(candidate, lambda: WorkerClient(fork_server, "cpu", Limits()), reference, cases)
            trial.build()
            trial.check()
            checked[name] = trial
            trial.close()
    alike, other = checked.values()
    assert alike.fault is None and alike.printed.count("drawn for") == 3
    assert [check.distribution for check in alike.checks] == ["own", "parameters", "own", "own"]
    # Other parameters are no mistake of their own: the case is left out, and the next one shows wrong values.
    assert other.fault is not None and "parameters" not in [check.distribution for check in other.checks]
