"""Problems whose reference changes an input in place: a candidate must change it in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from kernel_harness.api import Evaluator
from kernel_harness.core.status import Status
from kernel_harness.results.record import Result

pytestmark = pytest.mark.slow

PROBLEM = """
import torch
N = 2048

class Model(torch.nn.Module):
    def forward(self, {names}):
        {forward}

def get_inputs():
    return [{inputs}]
"""
KERNEL = """
import sys
import torch

def is_timed():
    frame = sys._getframe()
    while frame is not None:
        prepared = frame.f_locals.get("prepared")
        if hasattr(prepared, "timed"):
            return prepared.timed
        frame = frame.f_back
    return False

class ModelNew(torch.nn.Module):
    def forward(self, {names}):
        {forward}
"""
# The inputs and the reference of each problem.
ADDS = ("x, y", "torch.randn(N), torch.randn(N)", "x.add_(y); return x")
ACTIVATES = ("x", "torch.randn(N)", "y = x.relu_(); return y.sum().reshape(1)")
IN_HALF = ("x", "torch.randn(N, dtype=torch.float16)", "x.mul_(1.5); return x + 1")
COUNTS = ("x, seen", "torch.randn(N), torch.randint(0, 9, (N,))", "seen.add_(1); return x * 2")
MASKS = ("x, mask", "torch.randn(N), torch.rand(N) > 0.5", "mask.logical_not_(); return x * mask")
NOTHING = ("x", "torch.rand(N)", "x.mul_(1); return x * 2")
SHAPES = ("x", "torch.randn(32, 64)", "x.mul_(2).t_(); return x.contiguous()")
RESET = ("x, y", "torch.randn(N), torch.randn(N)", "z = x * y; x.zero_(); return z")

RIGHT = {
    "adds": (ADDS, "x.add_(y); return x"),
    "adds, and returns a copy": (ADDS, "x.copy_(x + y); return x.clone()"),
    "adds with other rounding errors": (ADDS, "x.copy_(((x.double() + y) * (1 + 1e-7)).float()); return x"),
    "activates": (ACTIVATES, "x.clamp_(min=0); return x.sum().reshape(1)"),
    "multiplies in half precision": (IN_HALF, "x.copy_(x.float() * 1.5); return x + 1"),
    "counts": (COUNTS, "seen += 1; return x + x"),
    "masks": (MASKS, "mask.copy_(~mask); return x * mask"),
    "changes nothing where the reference changes nothing": (NOTHING, "return x + x"),
    "changes the shape of its input as well": (SHAPES, "x.mul_(2); return x.t().contiguous()"),
    "resets": (RESET, "z = x * y; x.fill_(0); return z"),
}
WRONG = {
    "leaves the input": (ADDS, "return x + y", "left it as it was"),
    "zeroes the input": (ADDS, "z = x + y; x.zero_(); return z", "Input 1 after the call: "),
    "changes the other input as well": (ADDS, "x.add_(y); y.zero_(); return x", "Input 2 was changed by the call."),
    "changes one element otherwise": (ADDS, "x.add_(y); z = x.clone(); x[-1] += 1; return z", "[2047]"),
    "leaves what it should activate": (ACTIVATES, "return x.clamp(min=0).sum().reshape(1)", "Input 1 after the call"),
    "leaves numbers in half precision": (IN_HALF, "return x * 1.5 + 1", "left it as it was"),
    "counts twice": (COUNTS, "seen += 2; return x + x", "Input 2 after the call: "),
    "leaves a mask": (MASKS, "return x * ~mask", "left it as it was"),
    "changes what only seems to be changed": (NOTHING, "y = x + x; x.add_(1); return y", "Input 1 was changed"),
    "leaves what it should reset": (RESET, "return x * y", "left it as it was"),
    "leaves the input in timed calls": (ADDS, "return x + y if is_timed() else x.add_(y)", "timed call"),
    "zeroes the other input in timed calls": (
        ADDS, "x.add_(y); (y.zero_() if is_timed() else y); return x", "timed call wrote where it must not"),
}  # fmt: skip
STATUS = {
    "changes the other input as well": Status.MUTATED_INPUT,
    "changes what only seems to be changed": Status.MUTATED_INPUT,
    "zeroes the other input in timed calls": Status.MUTATED_INPUT,
}


Judge = Callable[[tuple[str, str, str], str], Result]


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """A function that judges a candidate's forward. Candidates of one problem have one evaluator."""
    with ExitStack() as open_evaluators:

        @cache
        def evaluator(names: str, inputs: str, reference: str) -> Evaluator:
            file = tmp_path_factory.mktemp("problem") / "p.py"
            file.write_text(PROBLEM.format(names=names, forward=reference, inputs=inputs))
            return open_evaluators.enter_context(Evaluator(file, device="cpu", budget_s=0.1))

        yield lambda problem, forward: evaluator(*problem).evaluate(KERNEL.format(names=problem[0], forward=forward))


@pytest.mark.parametrize("kind", list(RIGHT))
def test_a_candidate_that_changes_its_input_as_the_reference_does_passes(kind: str, judged: Judge) -> None:
    result = judged(*RIGHT[kind])
    assert result.status is Status.PASSED, result.reason


@pytest.mark.parametrize("kind", list(WRONG))
def test_a_candidate_that_changes_its_input_otherwise_fails(kind: str, judged: Judge) -> None:
    problem, forward, says = WRONG[kind]
    result = judged(problem, forward)
    assert result.status is STATUS.get(kind, Status.WRONG_VALUES), result.reason
    assert says in result.reason
