"""Names the fastest variant of each kernel, of the variants that a run has timed."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_harness.problem.problem import shape_text
from kernel_harness.problem.variants import parts
from kernel_harness.results.cells import bounds
from kernel_harness.results.record import Result
from kernel_harness.timing import intervals
from kernel_harness.timing.intervals import Comparison, Interval


def sentences(results: Sequence[Result]) -> list[str]:
    """Returns a sentence for each kernel and shape at which at least two variants of the kernel have a speedup.

    The sentence compares the fastest variant with the second, through the speedups of both over the baseline, at
    several shapes the geometric means. `results` are those of one run.
    """
    speedups: dict[tuple[str, str], list[tuple[Interval, str]]] = {}
    for result in results:
        kernel, defined = parts(result.kernel)
        if defined and result.speedup and result.is_timed_everywhere:
            found = speedups.setdefault((kernel, shape_text(result.shape)), [])
            found.append((result.speedup, ",".join(defined)))
    shapes = {tuple(result.shape.items()) for result in results}
    where = "under emulation, " if any(result.emulated for result in results) else ""
    return [
        f"{kernel}{f' at {shape}' if len(shapes) > 1 else ''}: {where}{_compared(found)}"
        for (kernel, shape), found in speedups.items()
        if len(found) > 1
    ]


def _compared(found: Sequence[tuple[Interval, str]]) -> str:
    (first, fastest), (second, next_one), *_ = sorted(found, key=lambda each: each[0].estimate, reverse=True)
    ratio = intervals.through_baseline(first, second)
    within = bounds(ratio, "{:#.4g}".format)
    how_sure = f"95% interval {within}" if within else "too few rounds for an interval; a larger --budget allows more"
    if intervals.compare(ratio) is Comparison.FASTER:
        return f"fastest with {fastest}, {ratio.estimate:#.4g}x as fast as with {next_one}, the second ({how_sure})."
    return (
        f"{fastest} and {next_one}, the fastest two, cannot be told apart: the first is {ratio.estimate:#.4g}x as fast "
        f"as the second ({how_sure})."
    )
