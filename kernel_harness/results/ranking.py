"""Which result of each kernel counts at the timed shapes of a leaderboard, and the order and the ranks of these."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernel_harness.core.status import Status
from kernel_harness.problem.problem import Shape
from kernel_harness.results.record import Result
from kernel_harness.timing.intervals import Interval, geometric_mean


def of_shapes(results: Sequence[Result], shape: Shape, further: Sequence[Shape] = ()) -> list[Result]:
    """Returns the results that were timed at `shape` and then at the `further` ones, and at no others.

    Speedups at other shapes are of other work.
    """
    wanted = [dict(each) for each in (shape, *further)]
    return [result for result in results if [dict(e) for e in (result.shape, *result.further_shapes)] == wanted]


def timed_at(results: Sequence[Result]) -> list[tuple[Shape, Sequence[Shape]]]:
    """Returns the shape and the further ones of each leaderboard of `results`, in the order of its first result."""
    found: list[tuple[Shape, Sequence[Shape]]] = []
    for result in results:
        if (at := (result.shape, result.further_shapes)) not in found:
            found.append(at)
    return found


def latest(results: Sequence[Result], shape: Shape, further: Sequence[Shape] = ()) -> dict[str, Result]:
    """Returns, by kernel name, the one result that counts for each kernel at a shape and at the `further` ones.

    `results` is ordered from old to new. A kernel's last result counts. Exception: an earlier result that has a time or
    the status CHEATED still counts if the later result has the same source and passed its checks but was not timed.
    """
    found: dict[str, Result] = {}
    for result in of_shapes(results, shape, further):
        before = found.get(result.kernel)
        if before is None or not _still_holds(before, result):
            found[result.kernel] = result
    return found


def _still_holds(before: Result, result: Result) -> bool:
    """Returns whether the earlier result `before` of a kernel still counts although `result` is later.

    It does if `before` has a time or the status CHEATED, and `result` is of the same source, passed its checks and was
    not timed. Without this rule, a CHEATED candidate would lose that status by a run that is killed before timing.
    """
    untimed = result.passed and result.timing is None
    more = before.timing is not None or before.status is Status.CHEATED
    return untimed and more and before.source_sha256 == result.source_sha256


def ordered(results: Sequence[Result]) -> list[Result]:
    """Returns the results in the order of a leaderboard (`leaderboard.rank`)."""
    by_speedup = _compares_speedups(results)

    def order(result: Result) -> tuple[bool, int, float, str, str]:
        score = None if result.emulated else _score(result, by_speedup)
        value = score.estimate if score else math.inf
        return not result.passed, _group(result), value, result.status, result.kernel

    return sorted(results, key=order)


def ranks(results: Sequence[Result]) -> dict[str, int]:
    """Returns the ranks of the kernels, by name.

    Two kernels have different ranks only if their 95% intervals, those of the times or at several shapes of the
    geometric means, do not overlap: kernels whose intervals overlap, directly or through the intervals of others, share
    a rank. The rank after two kernels on rank 1 is 3. A baseline, a kernel without an interval, one that is excluded
    (`Result.is_excluded`) and an emulated result have no rank. A kernel of a later group (`_group`) ranks after all
    kernels of an earlier one.
    """
    by_speedup = _compares_speedups(results)
    scores = ((r, _score(r, by_speedup)) for r in results if not (r.is_baseline or r.emulated or r.is_excluded))
    bounds = sorted(
        (_group(r), score.low, score.high, r.kernel)
        for r, score in scores
        if score and score.low is not None and score.high is not None
    )
    places: dict[str, int] = {}
    place, end, before = 0, 0.0, 0
    for count, (group, low, high, name) in enumerate(bounds, 1):
        place = count if low > end or group != before else place
        end = high if group != before else max(end, high)
        before = group
        places[name] = place
    return places


def _compares_speedups(results: Sequence[Result]) -> bool:
    """Returns whether geometric means of speedups decide, and not those of times: all have one baseline."""
    return len({r.settings.baseline for r in results if r.speedup}) == 1 and any(r.further for r in results)


def _score(result: Result, by_speedup: bool) -> Interval | None:
    """Returns the time at one shape; at several the geometric mean of the times, or of 1 / speedup. None without one.

    The least is the best.
    """
    if by_speedup:
        return result.speedup and result.speedup.inverse
    timed = [timing.time for timing in result.timings if timing]
    return geometric_mean(timed) if timed else None


def _group(result: Result) -> int:
    """Returns the place of a kernel's group among those that passed. Within a group, the score decides.

    0: the times are verified. 1: one is hardly verified. At several shapes, 2: the kernel refuses some shapes; 3: it
    was not timed at all of the timed ones, perhaps those where it is slow. 4: it is excluded. 5: it has no time, on a
    GPU.
    """
    if result.timing is None:
        return 0 if result.emulated else 5
    if result.is_excluded:
        return 4
    if result.further and not result.is_timed_everywhere:
        return 3
    if result.further and result.restricted_to:
        return 2
    return int(any(not timing.verified for timing in result.timings if timing))
