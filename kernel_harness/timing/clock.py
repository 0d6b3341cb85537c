"""Compares the times of calls by the device's clock with the times of the same calls by the judge's clock.

If the device's time of a candidate's calls is certainly too short, the judge's time replaces it. This module also sets
the hold.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kernel_harness.timing.statistics import Interval, Round, interval_of

# The judge's time replaces the device's time only if the two differ by more than this: a time in ms, or a share of the
# work around a call (allocation, layout of the output) if that share is longer. Honest calls differ by that much.
RESOLUTION_MS, RESOLUTION_SHARE = 0.05, 0.05
# Events around an empty kernel measure 2 to 3 us. A shorter time in a worker's report is treated as missing.
LEAST_MS = 5e-4


@dataclass
class Hold:
    """The hold: how long the device waits before a timed call, in device clock cycles.

    The launch gap is the time in which the device waits for the host to enqueue the call. The hold hides it: the call
    is enqueued before the device may begin it. A call that was not yet enqueued when the hold ended is exposed. All
    arms get the same hold, otherwise the judge's brackets could not be compared. The hold is doubled until no arm is
    exposed. An arm that is exposed even at the longest hold synchronizes with the device itself; it is added to
    `waiting`, and the launch gap is part of its time.
    Only an arm without a candidate (a baseline or the sentinel) lengthens the hold up to `longest`. A candidate
    lengthens it only up to `longest_on_request`, because a candidate that does not synchronize could use the hold for
    untimed work.
    """

    cycles: int = 1 << 20  # half a millisecond
    longest: int = 1 << 26
    longest_on_request: int = 1 << 22
    waiting: set[str] = field(default_factory=set)
    _enough: int = 1 << 20
    _exposed: frozenset[str] = frozenset()

    def update(self, exposed: Collection[str], trusted: Collection[str]) -> str | None:
        """Lengthens the hold if a call was exposed. Returns the reason to reject the round; None if the round counts.

        A call is exposed if it was not yet enqueued when the hold ended.
        `exposed` names the arms whose calls were exposed. `trusted` names the arms that hold no candidate.
        """
        leaking = frozenset(exposed) - self.waiting
        if self._exposed - leaking:  # an arm is no longer exposed since the hold was last lengthened
            self._enough = self.cycles
        self._exposed = leaking
        if not leaking:
            return None
        if self.cycles < (self.longest if leaking & set(trusted) else self.longest_on_request):
            self.cycles *= 2
        else:
            self.waiting |= leaking
            self.cycles, self._exposed = self._enough, frozenset()
        return f"the launch gap of {', '.join(sorted(leaking))} was not hidden"


def unseen_by_device(rounds: Sequence[Round], arm: str, baseline: str) -> Interval | None:
    """Returns the time in ms that only the judge's clock sees around an arm's calls, minus that of the baseline.

    For each call, this time is the judge's bracket minus the device's time. The difference between arm and baseline is
    taken in each round; the result is the interval of its median. The time to move inputs and outputs is in the
    brackets of both arms and cancels. Returns None if no counted round has brackets of both arms.
    """
    differences = [
        (r.brackets_ms[arm] - r.samples_ms[arm]) - (r.brackets_ms[baseline] - r.samples_ms[baseline])
        for r in rounds
        if r.rejected is None and arm in r.brackets_ms and baseline in r.brackets_ms
    ]
    return interval_of(np.array(differences, dtype=np.float64)) if differences else None


def resolution_ms(rounds: Sequence[Round], baseline: str) -> float:
    """Returns the smallest difference between the times of two arms that the judge's clock can show, in ms.

    This is 5% of the median time that only the judge's clock sees around the baseline's calls, and at least 0.05 ms.
    """
    around = [r.brackets_ms[baseline] - r.samples_ms[baseline] for r in rounds if baseline in r.brackets_ms]
    return max(RESOLUTION_MS, RESOLUTION_SHARE * float(np.median(around)))


def bounded_by_judge(rounds: Sequence[Round], judged: Collection[str], baseline: str) -> tuple[Round, ...]:
    """Returns the rounds, with the judge's times in place of device times that are certainly too short.

    Only the arms in `judged` are corrected. The other arms hold no candidate, so their device times can be trusted. The
    device times of an arm are certainly too short if the lower bound of `unseen_by_device` exceeds `resolution_ms`. The
    judge's time of a call is the bracket of the call minus an overhead. The overhead is the bracket of the baseline's
    call in the same round, minus the device time of that call.
    """
    if not any(baseline in r.brackets_ms for r in rounds):
        return tuple(rounds)
    least_ms = resolution_ms(rounds, baseline)
    doubted = set()
    for arm in set(judged) - {baseline}:
        interval = unseen_by_device(rounds, arm, baseline)
        if interval is not None and interval.low is not None and interval.low > least_ms:
            doubted.add(arm)
    return tuple(_with_judge_times(r, doubted, baseline) for r in rounds)


def _with_judge_times(r: Round, doubted: Collection[str], baseline: str) -> Round:
    if baseline not in r.brackets_ms:
        return r
    around = r.brackets_ms[baseline] - r.samples_ms[baseline]
    longer = {a: max(r.samples_ms[a], r.brackets_ms[a] - around) for a in doubted if a in r.brackets_ms}
    return replace(r, samples_ms={**r.samples_ms, **longer})
