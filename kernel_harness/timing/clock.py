"""Compares the times of calls by the device's clock with the times of the same calls by the judge's clock.

If the device's time of a candidate's calls is certainly too short, the judge's time replaces it. This module also says
how long a call is held back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernel_harness.timing.statistics import Interval, Round, interval_of

# The judge's time replaces the device's time only if the two differ by more than this: a time in ms, or a share of what
# the baseline's bracket contains beside the call, if that share is longer. Honest calls differ by that much.
# The time until the device says that a call is done is known better, because the judge's copy of the outputs is not in
# it: on an H200 it scattered by 1 to 2 us from call to call, and its medians of honest arms differed by at most 1.7 us.
RESOLUTION_MS, DONE_RESOLUTION_MS, RESOLUTION_SHARE = 0.004, 0.0025, 0.005
# On two H200s, the brackets of honest calls of 17 to 282 ms were 0.04 to 0.36% of the call longer than the baseline's,
# whose calls take 2.8 ms: other processes get their turns on the device meanwhile (SLICE_MS).
TURNS_SHARE = 0.005
# Measured on an H200, the brackets of calls that work in several streams were 10 to 16 us longer, and those of calls
# in which the host takes part 25 us, even compared with such calls of torch. In a few rounds a single disturbance can
# make a difference of a tenth of a millisecond.
STREAMS_MS, HOST_MS, FEW_ROUNDS_MS = 0.03, 0.05, 0.1
# An arm's calls work in several streams if the judge needs more than _SLOW_FILL_MS longer to write their inputs.
_SLOW_FILL_MS = 1.0
# Events around an empty kernel measure 2 to 3 us. A shorter time in a worker's report is treated as missing.
LEAST_MS = 5e-4
# Enqueuing a deep network takes torch tens of milliseconds.
MOST_HOLD_S, LEAST_HOLD_S = 0.128, 0.002
# An arm waits for the device after _EXPOSURES exposed calls. A call that is not exposed takes _FORGIVEN off this count.
_EXPOSURES, _FORGIVEN = 4, 0.1
# A GPU runs the work of one process at a time, for up to 2 ms (measured on an H200). Work that waits in several streams
# keeps a process on the device for so long, and only then can the judge's copy of the inputs begin.
SLICE_MS = 2.5


@dataclass
class Patience:
    """How long the judge waits for an arm's timed calls to be enqueued: at most `hold_s` seconds.

    The launch gap is the time in which the device waits for the host to enqueue the call. The hold hides it: the call
    is enqueued before its inputs are there. A call that was not yet enqueued when the hold ended is exposed. But an arm
    that synchronizes with the device itself is exposed however long the hold is. If calls are exposed too often, the
    hold gets shorter, and then `waits` is set. From then on the launch gap is part of the arm's time, and no round is
    rejected because of it. So an arm causes the rejection of a few rounds at most.
    """

    hold_s: float = MOST_HOLD_S
    waits: bool = False
    _exposures: float = 0.0

    def update(self, exposed: bool) -> bool:
        """Takes note of whether a call was exposed. Returns whether the call's round must be rejected."""
        if self.waits:
            return False
        self._exposures = self._exposures + 1 if exposed else max(0.0, self._exposures - _FORGIVEN)
        self.hold_s = max(LEAST_HOLD_S, MOST_HOLD_S / 4 ** int(self._exposures))
        self.waits = self._exposures >= _EXPOSURES
        return exposed


def unseen_by_device(rounds: Sequence[Round], arm: str, baseline: str, *, on_host: bool = False) -> Interval | None:
    """Returns the time in ms that only the judge's clock measures around an arm's calls, minus that of the baseline.

    For each call, this time is the judge's bracket minus the device's time. The difference between arm and baseline is
    taken in each round; the result is the interval of its median. The time to move outputs is in the brackets of both
    arms and cancels. If `on_host`, the arm's worker awaits the inputs on the host, and the arm is compared with a call
    of "torch" that does so, too (`Round.around_on_host_ms`). Returns None if no counted round has both times.
    """
    differences = _differences_ms(rounds, arm, baseline, on_host)
    return interval_of(np.array(differences, dtype=np.float64)) if differences else None


def _differences_ms(rounds: Sequence[Round], arm: str, baseline: str, on_host: bool) -> list[float]:
    return [
        r.brackets_ms[arm] - r.samples_ms[arm] - around_ms
        for r in rounds
        if r.rejected is None and arm in r.brackets_ms and (around_ms := _around_ms(r, baseline, on_host)) is not None
    ]


def _until_done_ms(r: Round, arm: str, baseline: str) -> float | None:
    """Returns `done_ms` minus the device's time of the arm's call, less this difference of the baseline's call, in ms.

    Returns None if the round lacks `done_ms` of one of the two.
    """
    if not {arm, baseline} <= r.done_ms.keys():
        return None
    return (r.done_ms[arm] - r.samples_ms[arm]) - (r.done_ms[baseline] - r.samples_ms[baseline])


def _around_ms(r: Round, baseline: str, on_host: bool) -> float | None:
    """Returns the bracket minus the device's time of the baseline's call, in ms; None if it is not known.

    If `on_host`, the call is the additional one whose worker awaits the inputs on the host.
    """
    if on_host:
        return r.around_on_host_ms
    return r.brackets_ms[baseline] - r.samples_ms[baseline] if baseline in r.brackets_ms else None


def resolution_ms(
    rounds: Sequence[Round], arm: str, baseline: str, *, on_host: bool = False, least_ms: float = RESOLUTION_MS
) -> float:
    """Returns the largest difference in ms between the clocks that an honest arm may have, as far as was measured.

    It is at least `least_ms`. It is larger for an arm whose worker awaits the inputs on the host (`on_host`), for a
    long call or a long time around the baseline's call, and for calls in several streams. The last are recognised by
    the time that the judge needs to write their inputs (`SLICE_MS`).
    """
    around = [r.brackets_ms[baseline] - r.samples_ms[baseline] for r in rounds if baseline in r.brackets_ms]
    call_ms = float(np.median([r.brackets_ms[arm] for r in rounds if arm in r.brackets_ms] or [0.0]))
    shares = RESOLUTION_SHARE * float(np.median(around)), TURNS_SHARE * call_ms
    least = max(least_ms, *shares, HOST_MS if on_host else 0.0)
    later = [r.fills_ms[arm] - r.fills_ms[baseline] for r in rounds if {arm, baseline} <= r.fills_ms.keys()]
    return max(least, STREAMS_MS) if later and float(np.median(later)) > _SLOW_FILL_MS else least


def counted_ms(bracket_ms: float, fill_ms: float, baseline_fill_ms: float) -> float:
    """Returns the time of a call by the judge's clock, in ms.

    `bracket_ms` begins when the inputs are there, `fill_ms` is the time in which they were written, and
    `baseline_fill_ms` the time in which the same inputs were written for the baseline. While the judge writes them no
    other process runs on the device, so the time for it is no time for work. But if the device went back to the
    candidate in between, as it can for inputs of gigabytes, the candidate could work on the inputs written first. So
    the excess of `fill_ms` over the baseline's time is added, less the one turn of SLICE_MS for which the judge may
    have to wait.
    """
    return bracket_ms + max(0.0, fill_ms - baseline_fill_ms - SLICE_MS)


def verified_to_ms(rounds: Sequence[Round], arm: str, baseline: str, *, on_host: bool = False) -> float | None:
    """Returns by how many milliseconds the device times of an arm could be too short without being corrected.

    This is `resolution_ms` plus half the width of the interval of `unseen_by_device`. Returns None if the judge's clock
    cannot verify the device's, or if there are too few rounds for an interval.
    """
    interval = unseen_by_device(rounds, arm, baseline, on_host=on_host)
    if interval is None or interval.low is None or interval.high is None:
        return None
    return resolution_ms(rounds, arm, baseline, on_host=on_host) + (interval.high - interval.low) / 2


def bounded_by_judge(
    rounds: Sequence[Round],
    judged: Collection[str],
    baseline: str,
    on_host: Collection[str] = (),
    always: Collection[str] = (),
) -> tuple[Round, ...]:
    """Returns the rounds, with the judge's times in place of device times that are certainly too short.

    Only the arms in `judged` and `always` are corrected. Other arms hold no candidate, so their device times can be
    trusted. The device times of an arm in `judged` are certainly too short if the lower bound of `unseen_by_device`
    exceeds `resolution_ms`. In too few rounds for a bound, all differences must exceed it, and FEW_ROUNDS_MS. The
    device cannot time the arms in `always`, so they are always corrected. The judge's time of a call is the bracket of
    the call minus an overhead: the bracket of the baseline's call in the same round, minus the device time of that
    call; 0 if unknown. The workers of the arms in `on_host` await the inputs on the host, and so does that call of the
    baseline.
    The time until the device says that a call is done (`Round.done_ms`) is compared in the same way, except for the
    arms in `on_host`. It is known better, but a worker can forge it. In each round, the longest of an arm's times
    counts. If no round has a bracket of the baseline, the rounds are returned as they are.
    """
    if not any(baseline in r.brackets_ms for r in rounds):
        return tuple(rounds)
    in_question = set(judged) - {baseline} - set(always)
    by_bracket = set(always) | {arm for arm in in_question if _bracket_is_longer(rounds, arm, baseline, arm in on_host)}
    by_done = {arm for arm in in_question - set(on_host) if _is_done_later(rounds, arm, baseline)}
    corrected = []
    for r in rounds:
        # Without a call of the baseline to compare with, the whole bracket counts.
        brackets = {
            arm: r.brackets_ms[arm] - (_around_ms(r, baseline, arm in on_host) or 0.0)
            for arm in by_bracket & r.brackets_ms.keys()
        }
        done = {
            arm: r.samples_ms[arm] + (_until_done_ms(r, arm, baseline) or 0.0) for arm in by_done & r.done_ms.keys()
        }
        longer = {arm: max(ms, brackets.get(arm, ms), done.get(arm, ms)) for arm, ms in r.samples_ms.items()}
        corrected.append(replace(r, samples_ms=longer))
    return tuple(corrected)


def _bracket_is_longer(rounds: Sequence[Round], arm: str, baseline: str, on_host: bool) -> bool:
    differences = _differences_ms(rounds, arm, baseline, on_host)
    return _exceeds(differences, resolution_ms(rounds, arm, baseline, on_host=on_host))


def _is_done_later(rounds: Sequence[Round], arm: str, baseline: str) -> bool:
    found = [_until_done_ms(r, arm, baseline) for r in rounds if r.rejected is None]
    least_ms = resolution_ms(rounds, arm, baseline, least_ms=DONE_RESOLUTION_MS)
    return _exceeds([ms for ms in found if ms is not None], least_ms)


def _exceeds(differences_ms: Sequence[float], least_ms: float) -> bool:
    """Returns whether the lower bound of the median of the differences exceeds `least_ms`.

    With too few differences for a bound, all must exceed `least_ms` and FEW_ROUNDS_MS. Without any, returns False.
    """
    if not differences_ms:
        return False
    low = interval_of(np.array(differences_ms, dtype=np.float64)).low
    return low > least_ms if low is not None else min(differences_ms) > max(least_ms, FEW_ROUNDS_MS)
