"""Compares the times of calls by the device's clock with the times of the same calls by the judge's clock.

If the device's time of a candidate's calls is certainly too short, the judge's time replaces it. This module also says
how long a call is held back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernel_harness.timing.intervals import Interval, interval_of
from kernel_harness.timing.statistics import Round

# The judge's time replaces the device's time only if the two differ by more than this, in ms. On an H200, the judge's
# bracket of calls of 5 us to 20 ms was 292.0 us longer than the call, 0.3 us more or less in the median of 40 calls.
# Brackets of calls that write much are longer by 4 us, and differ by up to 1.5 us between kernels of one problem.
RESOLUTION_MS = 0.0015
# If the judge's clock verifies a time only to this share of it, the reported time is the upper end.
HARDLY_VERIFIED = 0.25
# A call whose bracket is shorter is brief (`Timed.brief`): it is certainly shorter than a time slice of 2 ms.
BRIEF_MS = 1.0
# The bracket of any other call ends when the worker's stream says so, which it can do before its last work has ended.
# Measured on an H200, a kernel on a stream that was not joined was reported as up to 6 us shorter, in brief calls as up
# to 4 us shorter.
TAIL_MS = 0.008
# Where the memory is the host's, the bracket contains copies of inputs and outputs. Brackets of honest calls then
# differ by this share of what the baseline's bracket contains beside the call, and by at least COPIED_MS.
COPIED_MS, COPIED_SHARE = 0.004, 0.005
# On two H200s, the brackets of honest calls of 17 to 282 ms were 0.04 to 0.36% of the call longer than the baseline's,
# whose calls take 2.8 ms: other processes get their turns on the device meanwhile.
TURNS_SHARE = 0.005
# Measured on an H200, the brackets of calls in which the host takes part were 25 us longer, even compared with such
# calls of torch. In a few rounds a single disturbance can make a difference of a tenth of a millisecond.
HOST_MS, FEW_ROUNDS_MS = 0.05, 0.1
# Enqueuing a deep network takes torch tens of milliseconds. Calls that allocate an output of 6 GB sometimes took longer
# than 0.128 s on an H200. Nothing is kept waiting for the worker meanwhile but its own stream.
MOST_HOLD_S, LEAST_HOLD_S = 1.0, 0.002
# An arm waits for the device after _EXPOSURES exposed calls. A call that is not exposed takes _FORGIVEN off this count.
_EXPOSURES, _FORGIVEN = 4, 0.1


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
    taken in each round; the result is the interval of its median. If `on_host`, the arm's worker awaits the inputs on
    the host, and the arm is compared with a call of "torch" that does so, too (`Round.around_on_host_ms`). Returns None
    if no counted round has both times.
    """
    differences = _differences_ms(rounds, arm, baseline, on_host)
    return interval_of(np.array(differences, dtype=np.float64)) if differences else None


def _differences_ms(rounds: Sequence[Round], arm: str, baseline: str, on_host: bool) -> list[float]:
    return [
        r.brackets_ms[arm] - r.samples_ms[arm] - around
        for r in rounds
        if r.rejected is None
        and arm in r.brackets_ms
        and (around := around_ms(r, baseline, on_host=on_host)) is not None
    ]


def around_ms(r: Round, baseline: str, *, on_host: bool = False) -> float | None:
    """Returns the bracket minus the device's time of the baseline's call, in ms; None if it is not known.

    If `on_host`, the call is the additional one whose worker awaits the inputs on the host.
    """
    if on_host:
        return r.around_on_host_ms
    return r.brackets_ms[baseline] - r.samples_ms[baseline] if baseline in r.brackets_ms else None


def resolution_ms(
    rounds: Sequence[Round], arm: str, baseline: str, *, on_host: bool = False, alone: bool = False
) -> float:
    """Returns the largest difference in ms between the clocks that an honest arm may have, as far as was measured.

    It is larger for a long call, for an arm whose worker awaits the inputs on the host (`on_host`), where the judge's
    clock alone times the arm (`alone`), and where the brackets contain copies of inputs and outputs because the shared
    memory is the host's (`Round.copied`).
    """
    brackets = [r.brackets_ms[arm] for r in rounds if arm in r.brackets_ms]
    tail_ms = TAIL_MS if alone or (brackets and float(np.median(brackets)) >= BRIEF_MS) else 0.0
    calls = [
        r.brackets_ms[arm] - (around_ms(r, baseline, on_host=on_host) or 0.0) for r in rounds if arm in r.brackets_ms
    ]
    call_ms = float(np.median(calls or [0.0]))
    least = max(RESOLUTION_MS, TURNS_SHARE * call_ms, HOST_MS if on_host else tail_ms)
    copies = [ms for r in rounds if r.copied and (ms := around_ms(r, baseline)) is not None]
    return max(least, COPIED_MS, COPIED_SHARE * float(np.median(copies))) if copies else least


def verified_to_ms(
    rounds: Sequence[Round], arm: str, baseline: str, *, on_host: bool = False, alone: bool = False
) -> float | None:
    """Returns by how many milliseconds the times of an arm could be too short without being corrected.

    These are the device's times, or the judge's if its clock alone times the arm (`alone`). The true time of a call is
    at most `resolution_ms` above the upper bound of `unseen_by_device`, and the judge's times contain the estimate of
    `unseen_by_device` already. The lower bound does not count: a bracket of the baseline that was disturbed lowers it,
    and hides nothing, because the upper bound is above what is hidden. Returns None if the judge's clock cannot verify
    the device's, or if there are too few rounds for an interval.
    """
    interval = unseen_by_device(rounds, arm, baseline, on_host=on_host)
    if interval is None or interval.high is None:
        return None
    counted_ms = max(0.0, interval.estimate) if alone else 0.0
    least_ms = resolution_ms(rounds, arm, baseline, on_host=on_host, alone=alone)
    return least_ms + max(0.0, interval.high - counted_ms)


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
    baseline. In each round, the longer of an arm's times counts. If no round has a bracket of the baseline, the rounds
    are returned as they are.
    """
    if not any(baseline in r.brackets_ms for r in rounds):
        return tuple(rounds)
    in_question = set(judged) - {baseline} - set(always)
    by_judge = set(always) | {arm for arm in in_question if _is_longer(rounds, arm, baseline, arm in on_host)}
    corrected = []
    for r in rounds:
        # Without a call of the baseline to compare with, the whole bracket counts.
        brackets = {
            arm: r.brackets_ms[arm] - (around_ms(r, baseline, on_host=arm in on_host) or 0.0)
            for arm in by_judge & r.brackets_ms.keys()
        }
        longer = {arm: max(ms, brackets.get(arm, ms)) for arm, ms in r.samples_ms.items()}
        corrected.append(replace(r, samples_ms=longer))
    return tuple(corrected)


def _is_longer(rounds: Sequence[Round], arm: str, baseline: str, on_host: bool) -> bool:
    """Returns whether the arm's brackets show that its device times are certainly too short.

    With too few differences for a bound of their median, all must exceed the resolution and FEW_ROUNDS_MS. Without any,
    returns False.
    """
    differences_ms = _differences_ms(rounds, arm, baseline, on_host)
    if not differences_ms:
        return False
    least_ms = resolution_ms(rounds, arm, baseline, on_host=on_host)
    low = interval_of(np.array(differences_ms, dtype=np.float64)).low
    return low > least_ms if low is not None else min(differences_ms) > max(least_ms, FEW_ROUNDS_MS)
