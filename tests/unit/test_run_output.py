"""The lines below the table of a run: how long each phase took, and why timing took longer than the budget."""

from __future__ import annotations

from support.pages import result

from kernel_harness.cli.run import _over_budget, _phases
from kernel_harness.results.record import RunSettings


def timed(kernel: str, timing_s: float, budget_s: float | None = None):
    phases_s = {"queue": 9.0, "build": 2.0, "check": 1.0, "timing": timing_s}
    return result(kernel, phases_s=phases_s, run="a-run", settings=RunSettings(budget_s=budget_s))


def test_the_timing_of_two_cohorts_adds_up():
    cohorts = [timed("a", 4.0), timed("b", 4.0), timed("c", 3.0)]  # a and b were timed together

    assert _phases(cohorts) == "build 6.0 s, check 3.0 s, timing 7.0 s, run a-run"


def test_the_budget_limits_all_cohorts_together():
    assert _over_budget([timed("a", 4.0, 5.0), timed("b", 4.0, 5.0)]) == ""
    assert "longer than --budget 5:" in _over_budget([timed("a", 4.0, 5.0), timed("b", 3.0, 5.0)])
