"""Source code of the baselines and the control, the models that are called in the same rounds as the candidates.

Speedups are relative to a baseline. The control is a fixed piece of work, whose time shows if the machine changes.
"""

from __future__ import annotations

import importlib.util

from kernel_harness.core.arms import BASELINE, COMPILED, CONTROL
from kernel_harness.problem.problem import Problem
from kernel_harness.workers.model_process import ModelSource

# The control ignores the inputs and does the same work in each round. If its time changes, the machine has changed.
_CONTROL = """
import torch

class Control(torch.nn.Module):
    def __init__(self, *_):
        super().__init__()
        self.register_buffer("weight", torch.randn(256, 256) / 16)

    def forward(self, *_):
        product = self.weight
        for _ in range(4):
            product = product @ self.weight
        return product[:1]
"""


def reference_source(problem: Problem, compile_mode: str | None = None) -> ModelSource:
    """Returns the source of the problem's reference model.

    A worker process executes the source, and compiles the model in the mode `compile_mode` of torch.compile. If
    `compile_mode` is None, the model runs eagerly.
    """
    return ModelSource(str(problem.path), problem.text, "Model", compile_mode)


def trusted_arms(problem: Problem, baseline: str, *, compiled: bool) -> dict[str, ModelSource]:
    """Returns the sources of the arms that are timed but not judged, by the name of the arm.

    The arms are the baseline "torch" (the reference model, run eagerly), the control, and arms of torch.compile. Of
    the last, the one with the name `baseline` is included, and the one named "torch.compile" if `compiled` is True and
    triton is installed. The name of a candidate as `baseline` adds no arm.
    """
    found = {BASELINE: reference_source(problem), CONTROL: ModelSource("control.py", _CONTROL, "Control")}
    for name, mode in COMPILED.items():
        if name == baseline or (name == "torch.compile" and compiled and importlib.util.find_spec("triton")):
            found[name] = reference_source(problem, mode)
    return found
