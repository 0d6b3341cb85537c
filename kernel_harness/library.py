"""The harness as a function, for programs that write kernels. It prints nothing and keeps no files."""

from __future__ import annotations

from pathlib import Path

import torch

from kernel_harness import device as devices
from kernel_harness import find
from kernel_harness.candidate import Candidate
from kernel_harness.judge import judge
from kernel_harness.process import Limits
from kernel_harness.results import Result
from kernel_harness.settings import Settings

ROOT = Path(__file__).parent.parent


class _Nobody:
    """An Observer that looks away."""

    def stage(self, kernel: str, text: str) -> None:
        """Nothing is shown."""

    def settled(self, result: Result) -> None:
        """Nothing is shown."""


def evaluate(
    problem: str | Path,
    source: str,
    *,
    device: str | None = None,
    timeout_s: float = 60.0,
    budget_s: float | None = None,
) -> Result:
    """The verdict on one kernel, given as the text of its file.

    Args:
        problem: a shipped problem's name, or the path of a problem file.
        source: Python that defines `ModelNew`.
        device: "cpu" (emulated), "cuda" or "cuda:N"; by default the GPU where there is one.
        timeout_s: seconds for each call of the kernel.
        budget_s: seconds of timing; by default the device's own.

    Returns a Result whatever the candidate does; safe to call from many processes at once.
    Raises find.NotFound and problem.ProblemError for a problem that cannot be used, and
    build.errors.NoCompiler where nothing can be built.
    """
    chosen = devices.named(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    found = find.problem(str(problem), ROOT)
    if chosen.emulated:
        found = found.at(found.cpu_shape)
    candidate = Candidate("candidate", Path("candidate.py"), source)
    settings = Settings(limits=Limits(call_s=timeout_s), budget_s=budget_s, jobs=1)
    (result,) = (
        r for r in judge(found, [candidate], chosen, settings, _Nobody(), lambda result: None) if r.kind == "candidate"
    )
    return result
