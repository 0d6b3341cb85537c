"""Times the candidates that passed their checks, one cohort after another, and makes their times comparable."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

import torch

from kernel_harness.core.arms import BASELINE, CONTROL
from kernel_harness.core.phases import phase
from kernel_harness.explain import launches
from kernel_harness.results.record import Result
from kernel_harness.session.run import RunContext
from kernel_harness.session.settings import QUICK_SHARE
from kernel_harness.session.summary import failed, of_baseline, timed
from kernel_harness.session.trusted_arms import TrustedArmMissing, TrustedArms
from kernel_harness.timing.cohort import Arm, Cohort
from kernel_harness.timing.interference import flag_interference
from kernel_harness.timing.measurements import Measurements
from kernel_harness.timing.rounds import time_rounds
from kernel_harness.timing.statistics import any_counts, summarize
from kernel_harness.timing.stopping import Stop
from kernel_harness.trial.trial import State, Trial

_NO_MEMORY_BESIDE = (
    "beside the candidates of its cohort, the device had too little memory to compute the right answer. Run the kernel "
    "alone with --kernel."
)
_NO_MEMORY = (
    "beside the kernel, the device had too little memory to compute the right answer. End other programs that use the "
    "device, or choose a smaller --shape."
)
COHORT = 8
"""The largest number of candidates in one cohort."""


@dataclass
class Series:
    """The state that all cohorts of one run share. `time_cohorts` updates it after each cohort.

    Each cohort gets an equal share of the time budget of the settings. `expected` is the number of these shares: the
    number of cohorts if every candidate of the run passes; 0 means the number of cohorts of the current batch.
    `settle` gets the final results of the baselines. `baseline_ms` is the time of one call of the baseline "torch" in
    ms, in the first cohort that measured it; None before. On a GPU, the times of each later cohort are scaled so that
    its time of "torch" becomes `baseline_ms`, which makes the times of all cohorts comparable.
    """

    expected: int
    settle: Callable[[Result], None]
    baseline_ms: float | None = None


def time_cohorts(run: RunContext, trusted: TrustedArms, trials: Mapping[str, Trial], series: Series) -> None:
    """Divides the candidates into cohorts, and times one cohort after another. The trials are DONE then.

    `trials` maps names to trials that wait to be timed. `trusted` holds the worker processes of the baselines and
    the control, `series` the state that all cohorts share. Candidates of later cohorts have no process until their
    cohort is timed, so they cannot disturb an earlier cohort.
    """
    groups = _groups(run, trials)
    for name in chain(*groups[1:]):
        trials[name].close()
    for group in groups:
        cohort = [trials[name] for name in group]
        stop = _stop(run, series.expected or len(groups))
        while cohort:  # times it again without the candidates that disturbed the others
            cohort = _time_cohort(run, trusted, cohort, series, stop)


def _time_cohort(
    run: RunContext, trusted: TrustedArms, cohort: Sequence[Trial], series: Series, stop: Stop
) -> list[Trial]:
    """Times one cohort, and returns the trials that must be timed again. The others are DONE.

    If a candidate left work running, the other candidates are returned, because this work disturbed their times. If a
    baseline or the control cannot be started, or the device has too little memory left for the right answer, no
    candidate of the cohort is timed. After a KeyboardInterrupt, the results of the rounds so far are reported before
    the KeyboardInterrupt is raised again.
    """
    started = time.perf_counter()
    disturbed, lacking, interruption = False, "", None
    run.reference.make_room()
    try:
        with trusted.running(run) as beside:
            live = Cohort([*(Arm(trial.name, trial) for trial in cohort), *beside], run.device)
            try:
                disturbed = _measure(run, live, cohort, stop)
            except KeyboardInterrupt as interrupt:
                interruption = interrupt
            except torch.OutOfMemoryError:  # it sufficed for the checks: the candidates have taken it
                lacking = _NO_MEMORY_BESIDE if len(cohort) > 1 else _NO_MEMORY
            finally:
                for trial in cohort:
                    trial.close()
    except TrustedArmMissing as missing:
        _leave_untimed(cohort, str(missing))
        if missing.name != CONTROL:
            series.settle(failed(of_baseline(run, missing.name), missing.fault))
        return []
    if lacking:
        _leave_untimed(cohort, lacking)
        return []
    measured = live.measured()
    again = [trial for trial in cohort if disturbed and measured.arms[trial.name].fault is None]
    _report(run, cohort, measured, again, series, time.perf_counter() - started)
    if interruption:
        raise interruption
    return again


def _report(
    run: RunContext, cohort: Sequence[Trial], measured: Measurements, again: Collection[Trial], series: Series,
    seconds: float,
) -> None:  # fmt: skip
    """Gives the trials their measurements, after which they are DONE, and reports the baselines.

    Arms without a fault are left for the next time if there are trials to be timed `again`. The cohort took `seconds`.
    """
    scale_ms = series.baseline_ms
    for trial in cohort:
        # A candidate that is the baseline runs in every cohort and has its result in the first.
        if trial not in again and trial.state is not State.DONE:
            trial.measured, trial.scale_ms, trial.timing_s = measured, scale_ms, seconds
            trial.enter(State.TIMED)
            trial.enter(State.DONE)
    for arm in measured.arms.values():
        if arm.trusted and arm.name != CONTROL and (arm.fault or not again):
            series.settle(timed(run, of_baseline(run, arm.name), measured, scale_ms, seconds))
    if not again and scale_ms is None and any_counts(measured.accepted):
        series.baseline_ms = summarize(measured.accepted, BASELINE, None).time_ms


def _leave_untimed(cohort: Sequence[Trial], why: str) -> None:
    for trial in cohort:
        if trial.state is not State.DONE:
            trial.untimed = why
            trial.enter(State.DONE)


@phase("timing")
def _measure(run: RunContext, live: Cohort, cohort: Sequence[Trial], stop: Stop) -> bool:
    """Times the rounds of the cohort, and looks for work of libraries and for candidates that disturbed the others.

    The measurements and the faults are added to `live`, whose candidates are the trials in `cohort`. Returns whether a
    candidate disturbed the others.
    """
    tell = partial(run.tell, cohort)
    time_rounds(live, run.reference, stop, tell)
    for arm, trial in zip(live.candidates, cohort, strict=True):
        if arm.fault is None:
            # Before `flag_interference` ends the processes. One after the other: side by side on one GPU, the profilers
            # of several processes reported no kernels.
            launches.measure(trial, emulated=run.device.emulated)
    return flag_interference(live, run.reference, tell)


def _groups(run: RunContext, passed: Collection[str]) -> list[list[str]]:
    """Divides the names in `passed` into cohorts. A candidate that was chosen as the baseline is in every cohort."""
    baseline = run.settings.baseline
    if baseline not in passed:
        return even_groups(list(passed), COHORT)
    others = [name for name in passed if name != baseline]
    return [[baseline, *group] for group in even_groups(others, COHORT - 1) or [[]]]


def even_groups(names: list[str], size: int) -> list[list[str]]:
    """Divides the names into groups of at most `size`. The sizes of the groups differ by at most one."""
    count = -(-len(names) // size)
    return [names[i::count] for i in range(count)]


def _stop(run: RunContext, groups: int) -> Stop:
    """Returns the condition that ends the timing of a cohort, where `groups` cohorts share the time budget equally.

    Each of the timed shapes has an equal part of the budget. If the settings have no budget, the budget is the device's
    default, and QUICK_SHARE of it in a quick run.
    """
    settings, policy = run.settings, run.device.policy
    default = policy.budget_s * (QUICK_SHARE if settings.quick else 1)
    budget_s = (settings.budget_s or default) / groups / (1 + len(run.further))
    return Stop(budget_s, policy.half_width, settings.rounds, settings.baseline, policy.least_rounds)
