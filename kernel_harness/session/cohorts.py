"""Times the candidates that passed their checks, one cohort after another, and makes their times comparable."""

from __future__ import annotations

import time
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import torch

from cuda_on_cpu.core.tell import Tell
from kernel_harness.checking.launches import compare_without_kernels, count_launches
from kernel_harness.core.arms import BASELINE, SENTINEL
from kernel_harness.core.phases import phase
from kernel_harness.core.status import Status
from kernel_harness.problem.candidate import file_name
from kernel_harness.results.record import Result
from kernel_harness.sandbox.faults import Fault, Refused
from kernel_harness.sandbox.subject import Subject
from kernel_harness.session.checks import Checked
from kernel_harness.session.companions import CompanionMissing, Companions
from kernel_harness.session.run import RunContext
from kernel_harness.session.settings import QUICK_SHARE
from kernel_harness.session.summary import Terms, failed, left_untimed, of_baseline, of_candidate, timed, untimed
from kernel_harness.timing.baselines import ModelSource, reference_source
from kernel_harness.timing.interference import convict
from kernel_harness.timing.measurements import Measurements
from kernel_harness.timing.rounds import Arm, Cohort, time_rounds
from kernel_harness.timing.statistics import summarize
from kernel_harness.timing.stopping import Stop, least_rounds

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
    number of cohorts if every candidate of the run passes; 0 means the number of cohorts of the current batch. `timed`
    is the number of cohorts that have been timed. `baseline_ms` is the time of one call of the baseline "torch" in ms,
    in the first cohort that measured it; None before. On a GPU, the times of each later cohort are scaled so that its
    time of "torch" becomes `baseline_ms`, which makes the times of all cohorts comparable.
    """

    expected: int
    timed: int = 0
    baseline_ms: float | None = None


def time_cohorts(
    run: RunContext, companions: Companions, passed: Mapping[str, Checked], series: Series
) -> Iterator[Result]:
    """Divides the candidates into cohorts, times one cohort after another, and yields the results of each cohort.

    `passed` maps names to candidates that passed their checks. `companions` holds the worker processes of the baselines
    and the sentinel, `series` the state that all cohorts share. Candidates of later cohorts have no process until their
    cohort is timed, so they cannot disturb an earlier cohort.
    """
    groups = _groups(run, passed)
    for name in chain(*groups[1:]):
        passed[name].close()
    for group in groups:
        cohort = {name: passed[name] for name in group}
        stop = _stop(run, series.expected or len(groups))
        while cohort:  # times it again without the candidates that disturbed the others
            cohort = yield from _time_cohort(run, companions, cohort, series, stop)
        series.timed += 1


def _time_cohort(
    run: RunContext, companions: Companions, cohort: Mapping[str, Checked], series: Series, stop: Stop
) -> Generator[Result, None, dict[str, Checked]]:
    """Times one cohort, yields its results, and returns the candidates that must be timed again.

    If a candidate left work running, the other candidates are returned, because this work disturbed their times. If a
    baseline or the sentinel cannot be started, or the device has too little memory left for the right answer, no
    candidate of the cohort is timed. After a KeyboardInterrupt, the results of the rounds so far are yielded before the
    KeyboardInterrupt is raised again.
    """
    started = time.perf_counter()
    again: dict[str, Checked] = {}
    interruption: KeyboardInterrupt | None = None
    terms = Terms(series.baseline_ms, run.facts.bounds_ms)
    run.reference.make_room()
    with ExitStack() as processes:
        for checked in cohort.values():
            processes.callback(checked.close)
        try:
            beside = processes.enter_context(companions.running(run))
        except CompanionMissing as missing:
            yield from _untimed_for(run, cohort, str(missing))
            if missing.name != SENTINEL:
                yield failed(of_baseline(run.facts, missing.name), missing.fault)
            return {}
        arms = [_arm(run, checked, processes) for checked in cohort.values()]
        live = Cohort([*arms, *beside], run.device)
        try:
            cohort, again = _measure(run, live, cohort, stop)
        except KeyboardInterrupt as interrupt:
            interruption = interrupt
        except torch.OutOfMemoryError:  # it sufficed for the checks: the candidates have taken it
            yield from _untimed_for(run, cohort, _NO_MEMORY_BESIDE if len(cohort) > 1 else _NO_MEMORY)
            return {}
    measured = live.measured()
    reported = [name for name in measured.arms if _is_reported(run, measured, name, series, again)]
    results = untimed(run.facts, reported, {name: (c.candidate, c.outcome) for name, c in cohort.items()})
    yield from timed(results, measured, terms, time.perf_counter() - started)
    if not again and series.baseline_ms is None and any(r.rejected is None for r in measured.accepted):
        series.baseline_ms = summarize(measured.accepted, BASELINE, None).time_ms
    if interruption:
        raise interruption
    return again


def _untimed_for(run: RunContext, cohort: Mapping[str, Checked], reason: str) -> Iterator[Result]:
    for checked in cohort.values():
        yield left_untimed(of_candidate(run.facts, checked.candidate, checked.outcome), reason)


@phase("timing")
def _measure(
    run: RunContext, live: Cohort, cohort: Mapping[str, Checked], stop: Stop
) -> tuple[dict[str, Checked], dict[str, Checked]]:
    """Times the rounds of the cohort, and looks for work of libraries and for candidates that disturbed the others.

    The measurements and the faults are added to `live`, which holds the arms of the candidates in `cohort`. Returns two
    dictionaries by name: `cohort` with the work of each candidate's own kernels in its outcome, and the candidates
    that must be timed again because another one disturbed them; the second is empty if none did.
    """
    tell, start = _teller(run, cohort), partial(_start_arm, run, cohort)
    time_rounds(live, run.reference, stop, tell, start)
    looked_at = dict(cohort)
    for arm in live.candidates:
        if arm.fault is None:
            checked = cohort[arm.name]
            # One after the other: profilers of several processes, side by side on one GPU, reported no kernels.
            find_own_work = compare_without_kernels if run.device.emulated else count_launches
            outcome = find_own_work(arm.subject, checked.candidate, checked.outcome, run.reference, run.cases)
            looked_at[arm.name] = replace(checked, outcome=outcome)
            if not outcome.passed:
                arm.fault = Fault(outcome.status, outcome.reason)
    disturbed = convict(live, run.reference, start, tell)
    return looked_at, {arm.name: looked_at[arm.name] for arm in live.candidates if disturbed and arm.fault is None}


def _is_reported(run: RunContext, measured: Measurements, name: str, series: Series, again: Collection[str]) -> bool:
    """Returns whether this cohort yields a Result for the arm `name`.

    The sentinel has no result. `again` holds the candidates to time again; if there are any, only arms with a fault
    have a result now. A candidate that is the baseline runs in every cohort and has its result in the first.
    """
    arm = measured.arms[name]
    if name == SENTINEL or (again and arm.fault is None):
        return False
    return arm.trusted or name != run.settings.baseline or not series.timed


def _arm(run: RunContext, checked: Checked, processes: ExitStack) -> Arm:
    """Returns the candidate's arm. Starts a new worker process if the one that was checked has been closed.

    The arm has a fault if the new process does not start or cannot build the model. When the ExitStack `processes`
    closes, it ends the process that the arm has at that moment.
    """
    name, subject, fault = checked.candidate.name, checked.subject, None
    assert subject is not None
    if subject.closed:
        try:
            subject = _start_arm(run, {name: checked}, name)
        except (Fault, Refused) as error:
            fault = error if isinstance(error, Fault) else Fault(Status.RUNTIME_ERROR, str(error))
    arm = Arm(name, subject, fault=fault)
    processes.callback(lambda: arm.subject.close())
    return arm


def _start_arm(run: RunContext, cohort: Mapping[str, Checked], name: str) -> Subject:
    """Starts a new worker process for the arm `name`, builds the arm's model there, and returns the process.

    `name` is "torch" or the name of a candidate in `cohort`. Raises Fault or Refused if the model cannot be built.
    """
    if name == BASELINE:
        return run.load_subject(reference_source(run.problem))
    candidate, checked = cohort[name].candidate, cohort[name].subject
    assert checked is not None
    return run.load_subject(ModelSource(file_name(candidate), candidate.source, "ModelNew"), checked.failed_builds)


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

    If the settings have no budget, the budget is the device's default, and QUICK_SHARE of it in a quick run.
    """
    settings = run.settings
    default = run.device.budget_s * (QUICK_SHARE if settings.quick else 1)
    budget_s = (settings.budget_s or default) / groups
    least = least_rounds(emulated=run.device.emulated)
    return Stop(budget_s, run.device.half_width, settings.rounds, settings.baseline, least)


def _teller(run: RunContext, names: Collection[str]) -> Tell:
    """Returns a function that tells the run's observer, for each candidate in `names`, that a step has begun."""

    def tell(text: str) -> None:
        for name in names:
            run.observer.stage(name, text)

    return tell
