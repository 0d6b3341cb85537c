"""What a device's own clock is worth: is the launch gap hidden, does the judge's agree. Statistics are timing's."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kernel_harness.timing import Interval, Round, interval_of

# The judge's clock must disagree with the device's by more than this before it is believed: what honest calls
# differ by in the work around them (allocating, the layout of the output), as a time and as a share of that work.
RESOLUTION_MS, RESOLUTION_SHARE = 0.05, 0.05
# Events around an empty kernel see 2 to 3 us: who tells of less than this tells no time.
LEAST_MS = 5e-4


@dataclass
class Hold:
    """How long the device is kept waiting before a timed call, so that the call is enqueued before it begins.

    The same for every arm, or the judge's brackets could not be compared. It is lengthened until no arm is exposed.
    An arm that stays exposed however long the hold waits for the device itself: then the gap is part of its time.
    Only for a trusted arm it gets as long as that takes: whoever does not wait can work meanwhile, unseen.
    """

    cycles: int = 1 << 20  # half a millisecond
    longest: int = 1 << 26
    longest_on_request: int = 1 << 22
    waiting: set[str] = field(default_factory=set)
    _enough: int = 1 << 20
    _exposed: frozenset[str] = frozenset()

    def after(self, exposed: Collection[str], trusted: Collection[str]) -> str | None:
        """Takes in which arms of a round were exposed. Why the round does not count, None where it does."""
        leaking = frozenset(exposed) - self.waiting
        if self._exposed - leaking:  # somebody was helped by the last lengthening
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


def beyond(rounds: Sequence[Round], arm: str, baseline: str) -> Interval | None:
    """Milliseconds that the judge's clock sees of an arm's calls and the device's does not, beyond the baseline's.

    What moving the bytes takes is in both arms' brackets and cancels. None where no round has both clocks of both.
    """
    differences = [
        (r.brackets_ms[arm] - r.samples_ms[arm]) - (r.brackets_ms[baseline] - r.samples_ms[baseline])
        for r in rounds
        if r.rejected is None and arm in r.brackets_ms and baseline in r.brackets_ms
    ]
    return interval_of(np.array(differences, dtype=np.float64)) if differences else None


def resolution_ms(rounds: Sequence[Round], baseline: str) -> float:
    """What the judge's clock cannot tell: a share of what it sees around the baseline's calls."""
    around = [r.brackets_ms[baseline] - r.samples_ms[baseline] for r in rounds if baseline in r.brackets_ms]
    return max(RESOLUTION_MS, RESOLUTION_SHARE * float(np.median(around)))


def bounded(rounds: Sequence[Round], judged: Collection[str], baseline: str) -> tuple[Round, ...]:
    """The rounds, the device's times of a judged arm replaced by the judge's where those are surely longer.

    Surely: the lower bound of what is `beyond` exceeds the resolution. The other arms' processes hold no candidate,
    so their device times stand.
    """
    if not any(baseline in r.brackets_ms for r in rounds):
        return tuple(rounds)
    least_ms = resolution_ms(rounds, baseline)
    doubted = set()
    for arm in set(judged) - {baseline}:
        interval = beyond(rounds, arm, baseline)
        if interval is not None and interval.low is not None and interval.low > least_ms:
            doubted.add(arm)
    return tuple(_by_the_judge(r, doubted, baseline) for r in rounds)


def _by_the_judge(r: Round, doubted: Collection[str], baseline: str) -> Round:
    if baseline not in r.brackets_ms:
        return r
    around = r.brackets_ms[baseline] - r.samples_ms[baseline]
    longer = {a: max(r.samples_ms[a], r.brackets_ms[a] - around) for a in doubted if a in r.brackets_ms}
    return replace(r, samples_ms={**r.samples_ms, **longer})
