"""The harness as a function, for programs that write kernels. It prints nothing and keeps no files."""

from __future__ import annotations

from pathlib import Path

from kernel_harness import find
from kernel_harness.candidate import Candidate
from kernel_harness.judge import Nobody, judge
from kernel_harness.paths import ROOT
from kernel_harness.process import Limits
from kernel_harness.results import Result
from kernel_harness.settings import Settings


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
    Raises find.NotFound and problem.ProblemError for a problem that cannot be used, errors.UserError for a device
    that is not there, and build.errors.NoCompiler where nothing can be built.
    """
    chosen = find.device(device or "auto")
    found = find.problem(str(problem), ROOT).on(emulated=chosen.emulated)
    candidate = Candidate("candidate", Path("candidate.py"), source)
    settings = Settings(limits=Limits(call_s=timeout_s), budget_s=budget_s, jobs=1)
    (result,) = (
        r for r in judge(found, [candidate], chosen, settings, Nobody(), lambda result: None) if r.kind == "candidate"
    )
    return result
