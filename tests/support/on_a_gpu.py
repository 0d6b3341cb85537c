"""Judges candidates on a GPU, for the tests of tests/gpu."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kernel_harness.device.cuda import Cuda
from kernel_harness.problem.candidate import Candidate
from kernel_harness.problem.problem import load
from kernel_harness.results.record import Result
from kernel_harness.session.run import SilentObserver
from kernel_harness.session.session import Session
from kernel_harness.session.settings import Settings


def judged(problem: Path, sources: Mapping[str, str], budget_s: float) -> dict[str, Result]:
    """The results of candidates, given by name and source, that are timed in one run of a problem; by name."""
    candidates = [Candidate(name, Path(f"{name}.py"), source) for name, source in sources.items()]
    with Session(load(problem.stem, problem), Cuda("cuda"), Settings(budget_s=budget_s), SilentObserver()) as session:
        return {result.kernel: result for result in session.judge(candidates, lambda result: None)}
