"""What is known of a problem is kept from one run to the next, as long as it is the same problem."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from kernel_harness.problem import sizing
from kernel_harness.problem.known import known
from kernel_harness.problem.problem import Problem, load

SOURCE = """
import torch
from beside_known import SCALE

N = 4096

class Model(torch.nn.Module):
    def forward(self, x):
        return x.relu() * SCALE

def get_inputs():
    return [torch.rand(N, N)]
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNEL_HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "beside_known", raising=False)  # of another test
    (tmp_path / "beside_known.py").write_text("SCALE = 2\n")
    time.sleep(0.1)  # a file that is just being written may change unseen
    return tmp_path / "cache"


def problem(tmp_path: Path, source: str = SOURCE) -> Problem:
    path = tmp_path / "p.py"
    path.write_text(source)
    return load("p", path)


def computed(of: Problem, what: str = "a value", **more: str) -> bool:
    """Whether the value had to be computed."""
    calls = []
    assert known(of, what, lambda: calls.append(1) or {"N": 3, "other": [1.5]}, **more) == {"N": 3, "other": [1.5]}
    return bool(calls)


def test_a_value_is_computed_once_for_a_problem_at_one_size(tmp_path: Path) -> None:
    first = problem(tmp_path)

    assert computed(first) and not computed(first) and not computed(problem(tmp_path))
    assert computed(first, "another") and computed(first, device="h200") and computed(first.at({"N": 64}))
    assert computed(problem(tmp_path, SOURCE + "\n# changed"))


def test_a_changed_module_beside_the_problem_makes_it_another_problem(tmp_path: Path) -> None:
    first = problem(tmp_path)
    assert computed(first) and not computed(first)
    (tmp_path / "beside_known.py").write_text("SCALE = 3\n")
    assert computed(first)


def test_without_a_cache_the_value_is_computed_each_time(tmp_path: Path, cache: Path) -> None:
    cache.write_text("no folder")
    first = problem(tmp_path)
    assert computed(first) and computed(first)


def test_sizes_are_chosen_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = sizing.fitted(problem(tmp_path))
    monkeypatch.setattr(sizing, "cost", None)  # what is known needs no run of the model
    assert sizing.fitted(problem(tmp_path)) == first != {}
