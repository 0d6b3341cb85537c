"""What runs beside the candidates when they are timed: baselines, the sentinel, and a call that only moves bytes."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from kernel_harness.problem import Problem
from kernel_harness.race import BASELINE, NULL, SENTINEL

COMPILED = "torch.compile"

# The same work every time, whatever the inputs: when its time moves, the machine did.
_SENTINEL = """
import torch

class Sentinel(torch.nn.Module):
    def __init__(self, *_):
        super().__init__()
        self.register_buffer("weight", torch.randn(256, 256) / 16)

    def forward(self, *_):
        product = self.weight
        for _ in range(4):
            product = product @ self.weight
        return product[:1]
"""

# Receives what a candidate receives and returns what it returns, without work in between.
_NULL = """
import torch
{reference}

class Null(torch.nn.Module):
    def __init__(self, *init):
        super().__init__()
        self.model, self.answer = Model(*init), None

    def forward(self, *inputs):
        if self.answer is None:
            self.answer = self.model(*inputs)
        return self.answer
"""


def companions(problem: Problem, emulated: bool) -> Iterator[tuple[str, str, str, str]]:
    """(name, file, source, class) of each arm that is timed and not judged."""
    yield BASELINE, str(problem.path), problem.text, "Model"
    yield SENTINEL, "sentinel.py", _SENTINEL, "Sentinel"
    if not emulated:
        yield NULL, "null.py", _NULL.format(reference=problem.text), "Null"
        if importlib.util.find_spec("triton"):
            yield COMPILED, str(problem.path), problem.text, "Model"
