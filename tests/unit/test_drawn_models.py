"""Models are drawn once for a seed, and each user has a model of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernel_harness.problem import drawn_models
from kernel_harness.problem.problem import Problem, load

COMMON = """
import torch

drawn = 0


class Model(torch.nn.Module):
    def __init__(self):
        global drawn
        drawn += 1
        super().__init__()
        self.layer = torch.nn.Linear(2048, 2049)
        self.norm = torch.nn.BatchNorm1d(2049)
        {more}

    def forward(self, x):
        return {output}


def get_inputs():
    return [torch.rand(4, 2048)]


def get_init_inputs():
    return []
"""


TIED, NORMED = "self.tied = self.layer.weight", "self.norm(self.layer(x))"


def problem(folder: Path, more: str = TIED, output: str = NORMED) -> Problem:
    path = folder / "large.py"
    path.write_text(COMMON.format(more=more, output=output))
    return load("large", path)


def answer(given: Problem) -> torch.Tensor:
    return given.forward(given.model("cpu"), given.inputs(0))


def test_weights_are_drawn_once_for_a_seed_and_are_those_of_a_new_model(tmp_path):
    given = problem(tmp_path)
    right = given.forward(given.new_model(), given.inputs(0))
    assert torch.equal(answer(given), right) and torch.equal(answer(given), right)
    random = given.with_random_parameters(7)
    assert not torch.equal(answer(random), right)
    assert torch.equal(answer(random), given.forward(random.new_model(), given.inputs(0)))
    given.state(), random.state()
    assert given.module.drawn == 4


def test_a_model_that_is_changed_changes_no_other(tmp_path):
    given = problem(tmp_path)
    right, first = answer(given), given.model("cpu")
    with torch.no_grad():
        first.layer.weight.zero_()
        first.norm.running_mean.fill_(9)
    assert first.tied is first.layer.weight and not given.forward(first, given.inputs(0)).eq(right).all()
    assert torch.equal(answer(given), right) and given.state()["layer.weight"].any()
    assert given.module.drawn == 1


@pytest.mark.parametrize(
    ("more", "output"),
    [
        ("self.call = self.layer.forward", "self.call(x)"),
        ("self.call = lambda x: self.layer(x)", "self.call(x)"),
        ("self.call = self.layer.weight.matmul", "self.call(x.T)"),
        ("self.view = self.layer.weight.detach()[:9]", "x @ self.view.T"),
        ("self.layer.weight.mark = self", "self.layer(x)"),
    ],
)
def test_a_model_that_a_copy_could_refer_to_is_drawn_again(tmp_path, more, output):
    given = problem(tmp_path, more, output)
    models = [given.model("cpu"), given.model("cpu")]
    assert given.module.drawn == 2
    with torch.no_grad():
        models[0].layer.weight.zero_()
    assert given.forward(models[1], given.inputs(0)).any()


def test_models_that_take_too_much_memory_are_drawn_again(tmp_path, monkeypatch):
    monkeypatch.setattr(drawn_models, "_SHARE", 0)
    given = problem(tmp_path)
    right, first = answer(given), given.model("cpu")
    with torch.no_grad():
        first.layer.weight.zero_()
    assert torch.equal(answer(given), right) and given.module.drawn == 3


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_kept_model_goes_to_a_gpu_once_and_each_copy_is_its_own(tmp_path: Path) -> None:
    given = problem(tmp_path)
    right = given.model("cpu").layer.weight.cuda()
    first = given.model("cuda")
    before = torch.cuda.memory_allocated()
    second = given.model("cuda")
    with torch.no_grad():
        first.layer.weight.zero_()
    assert second.tied is second.layer.weight and torch.equal(second.layer.weight, right)
    assert torch.equal(given.model("cuda").layer.weight, right)
    given.drawn_models.leave_gpu()
    assert torch.cuda.memory_allocated() <= before
