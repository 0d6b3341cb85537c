"""The lines below the table of a run: how long each phase took, and why timing took longer than the budget."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.pages import result

from kernel_harness.cli.run import _over_budget, _phases
from kernel_harness.core import phases
from kernel_harness.results.record import RunSettings


def timed(kernel: str, timing_s: float, budget_s: float | None = None):
    phases_s = {"queue": 9.0, "build": 2.0, "check": 1.0, "timing": timing_s}
    return result(kernel, phases_s=phases_s, run="a-run", settings=RunSettings(budget_s=budget_s))


def test_the_phases_of_the_command_add_up_to_all_of_it() -> None:
    def command() -> str:
        phases.record("start", time.monotonic() - 2)
        for name, inner in (("planning", "inputs"), ("device", "inputs"), ("timing", "rounds")):
            with phases.phase(name), phases.phase(inner):
                time.sleep(0.1)
        return _phases([timed("a", 4.0)])

    with ThreadPoolExecutor(1) as thread:  # each thread has phases of its own
        *told, total, run = thread.submit(command).result().split(", ")
    seconds = {name: float(number) for name, number in (each.removesuffix(" s").split() for each in told)}

    assert list(seconds) == ["start", "planning", "device", "timing"] and run == "run a-run"
    assert seconds["start"] >= 2 and seconds["planning"] >= 0.1 and seconds["device"] >= 0.1
    assert float(total.split()[0]) == pytest.approx(sum(seconds.values()), abs=0.2)


def test_the_budget_limits_all_cohorts_together():
    assert _over_budget([timed("a", 4.0, 5.0), timed("b", 4.0, 5.0)]) == ""
    assert "longer than --budget 5:" in _over_budget([timed("a", 4.0, 5.0), timed("b", 3.0, 5.0)])
