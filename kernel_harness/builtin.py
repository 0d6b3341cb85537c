"""What runs beside the candidates when they are timed: the baselines and the sentinel."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from kernel_harness.cohort import BASELINE, SENTINEL
from kernel_harness.problem import Problem

# What torch.compile is asked for, by the name of the arm.
COMPILED = {"torch.compile": "default", "torch.compile:max-autotune": "max-autotune"}
BASELINES = (BASELINE, *COMPILED)

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


def companions(problem: Problem, emulated: bool, baseline: str) -> Iterator[tuple[str, str, str, str]]:
    """(name, file, source, class) of each arm that is timed and not judged."""
    yield BASELINE, str(problem.path), problem.text, "Model"
    yield SENTINEL, "sentinel.py", _SENTINEL, "Sentinel"
    for name in COMPILED:
        if name == baseline or (name == "torch.compile" and not emulated and importlib.util.find_spec("triton")):
            yield name, str(problem.path), problem.text, "Model"
