"""The reward of a result, for programs that learn to write kernels."""

from __future__ import annotations

from kernel_harness.results.record import Result

LEAST = 0.01
"""The least reward of a right kernel."""


def reward(result: Result) -> float:
    """Returns the reward of a kernel: 0 if it did not pass, else the lower bound of its speedup's 95% interval.

    At several shapes the speedup is the geometric mean. A kernel that passed gets at least LEAST, so right is always
    better than wrong. It gets LEAST, too, if it has too few rounds for an interval, or if it has no speedup at one of
    the shapes: refusing the shapes where it is slow must not pay. The same holds if its own kernels do less of the work
    than required (`Result.is_excluded`). Under emulation, another kernel that passed gets 1. docs/suites.md says why.
    """
    if not result.passed:
        return 0.0
    if result.emulated:
        return LEAST if result.is_excluded else 1.0
    speedup = result.speedup if result.is_timed_everywhere and not result.is_excluded else None
    return LEAST if speedup is None or speedup.low is None else max(LEAST, speedup.low)
