"""Which models of a reference are used for a second call, and which are built anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from kernel_harness.checking.cases import Reference, plan
from kernel_harness.checking.unchanged_models import UnchangedModels
from kernel_harness.problem.problem import load


class Net(nn.Module):
    """A model with attributes of many kinds, which calls `change` on itself in each call."""

    def __init__(self, change: Callable[[Net], object]) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Dropout(), nn.GELU())
        self.register_buffer("mask", torch.ones(3, 3, dtype=torch.bool))
        self.plain, self.view, self.empty = torch.arange(3), torch.rand(9)[1:4], torch.rand(0)
        self.sizes, self.options, self.count = (1, [2, 3]), {"a": None, "b": 1.5}, 0
        self.function, self.kind = torch.relu, torch.float32
        self.change = change

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.change(self)
        return self.layers(x) * self.mask.sum()


def made(change: Callable[[Any], object], calls: int = 3, most_bytes: int = 1 << 30) -> int:
    """How many models are made for some calls of one model."""
    kept, count = UnchangedModels(lambda: most_bytes), 0

    def make() -> Net:
        nonlocal count
        count += 1
        return Net(change)

    with torch.no_grad():
        for _ in range(calls):
            kept.call("key", make, lambda model: model(torch.rand(2, 5)))
    return count


def nothing(net: Net) -> None:
    pass


def weight(net: Net) -> torch.Tensor:
    return next(net.parameters())


def test_a_model_that_no_call_changes_is_made_once() -> None:
    assert made(nothing) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda net: weight(net).add_(1),
        lambda net: weight(net).data.mul_(2),
        lambda net: weight(net).data[:1, :1].add_(1e-3),
        lambda net: net.mask.fill_(False),
        lambda net: net.plain.add_(1),
        lambda net: net.view.data.add_(1),
        lambda net: setattr(net, "plain", net.plain.clone()),
        lambda net: setattr(net, "count", net.count + 1),
        lambda net: net.sizes[1].append(4),
        lambda net: net.options.update(a=2),
        lambda net: net.layers.eval(),
        lambda net: net.layers.append(nn.Identity()),
        lambda net: setattr(net, "kept", object()),
        lambda net: setattr(net, "kept", torch.Generator()),
        lambda net: setattr(net, "kept", [nn.Linear(2, 2)]),
        lambda net: setattr(net, "kept", torch.eye(2).to_sparse()),
        lambda net: setattr(net, "function", torch.tanh),
    ],
    ids=[
        "parameter", "data", "one-number", "buffer", "tensor", "view", "another-tensor", "number", "list", "dict",
        "mode", "module", "object", "generator", "hidden-module", "sparse", "function",
    ],
)  # fmt: skip
def test_a_model_is_made_anew_after_a_call_that_changed_it_or_may_have(change: Callable[[Any], object]) -> None:
    times = iter([True, False, False])
    assert made(lambda net: change(net) if next(times) else None) > 1


def test_a_running_mean_is_a_change() -> None:
    kept, models = UnchangedModels(lambda: 1 << 30), list[nn.Module]()
    for _ in range(2):
        kept.call("key", lambda: nn.BatchNorm1d(4), lambda model: (models.append(model), model(torch.rand(8, 4))))
    assert models[0] is not models[1]


def test_a_call_that_fails_and_another_key_need_a_new_model() -> None:
    kept, count = UnchangedModels(lambda: 1 << 30), 0

    def make() -> nn.Module:
        nonlocal count
        count += 1
        return nn.Linear(3, 3)

    for key in ("a", "a", "b", "a"):
        kept.call(key, make, lambda model: model)
    assert count == 2
    with pytest.raises(ZeroDivisionError):
        kept.call("b", make, lambda model: 1 / 0)
    kept.call("b", make, lambda model: model)
    assert count == 3 and kept.nbytes == 2 * 12 * 4
    kept.trim(12 * 4)
    kept.call("b", make, lambda model: model)
    assert count == 3 and kept.nbytes == 12 * 4
    kept.clear()
    assert kept.nbytes == 0


def test_a_large_model_is_not_kept() -> None:
    assert made(nothing) == 1
    assert made(nothing, most_bytes=100) == 3


def test_every_answer_of_a_reference_is_that_of_a_new_model(tmp_path: Path) -> None:
    """The reference counts its calls in a number and in a weight."""
    path = tmp_path / "p.py"
    path.write_text(
        """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        self.weight.data.mul_(self.calls)
        return x * self.weight * self.calls

def get_inputs():
    return [torch.rand(3, 4)]
"""
    )
    problem = load("p", path)
    reference = Reference(problem, "cpu", None)
    for case in plan(problem, 1):
        expectation = reference.expectation(case)[1]
        wanted = reference.inputs(case).tensors[0] * reference.at(case).model("cpu").weight.detach()
        assert torch.equal(expectation.expected[0], wanted)
        assert expectation.oracle is not None and torch.allclose(expectation.oracle[0], wanted.double())
