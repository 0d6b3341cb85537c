"""Candidates that have passed, timed cohort after cohort on one scale. How a cohort is timed is race's work."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from kernel_harness import builtin, culprit, launches, race
from kernel_harness.candidate import Candidate
from kernel_harness.cohort import BASELINE, COHORT, Arm, Cohort, cohorts
from kernel_harness.examine import Fault, Finding, Refused, Subject, file_name
from kernel_harness.race import Stop
from kernel_harness.results import Result
from kernel_harness.status import Status
from kernel_harness.summary import left_untimed, of_candidate, timed, untimed
from kernel_harness.timing import summarize
from kernel_harness.underway import UnderWay

if TYPE_CHECKING:
    from kernel_harness.judge import Session

# A candidate that passed its checks, and the process that did.
Held = tuple[Candidate, Subject, Finding]


class NoCompanion(Exception):
    """What all are timed against cannot be started, as where a candidate holds what it needs."""


@dataclass
class Series:
    """Cohorts that are compared: how many there will be (0: as many as the batch has), and what links them."""

    expected: int
    timed: int = 0
    baseline_ms: float | None = None


def cohort_by_cohort(run: Session, passed: Mapping[str, Held], series: Series) -> Iterator[Result]:
    """Cohort after cohort. Who is not of the first has no process meanwhile: it could disturb the others."""
    groups = _groups(run, passed)
    for name in chain(*groups[1:]):
        passed[name][1].close()
    for group in groups:
        yield from _timed_together(run, {name: passed[name] for name in group}, series, len(groups))
        series.timed += 1


def _timed_together(
    run: Session, held: Mapping[str, Held], series: Series, groups: int, before: Cohort | None = None
) -> Iterator[Result]:
    """One cohort; again without those who disturbed the others. What an interruption leaves is still summed up."""
    started = time.perf_counter()
    seen = {name: (candidate, finding) for name, (candidate, _, finding) in held.items()}
    innocent: dict[str, Held] = {}
    interruption: KeyboardInterrupt | None = None
    terms = run.context.terms(series.baseline_ms)
    with ExitStack() as processes:
        for _, subject, _ in held.values():
            processes.callback(subject.close)
        try:
            beside = processes.enter_context(companions(run))
        except NoCompanion as missing:
            for candidate, finding in seen.values():
                yield left_untimed(of_candidate(run.context, candidate, finding), str(missing))
            return
        # A kernel that all are measured against runs with every cohort, and is reported with the first.
        arms = [
            _arm(run, held, name, processes, reported=name != run.settings.baseline or not series.timed)
            for name in held
        ]
        cohort = Cohort([*arms, *beside], run.device, trials=before.trials if before else {})
        under_way = UnderWay(run.journal, cohort, list(untimed(run.context, cohort, seen)), terms)
        try:
            innocent = _measured(run, cohort, held, _stop(run, series.expected or groups), under_way)
        except KeyboardInterrupt as interrupt:
            interruption = interrupt
    for arm in cohort.arms:
        arm.reported &= not innocent or arm.fault is not None
    yield from timed(untimed(run.context, cohort, seen), cohort, terms, time.perf_counter() - started)
    under_way.done()  # not before the last result is kept
    if innocent:
        yield from _timed_together(run, innocent, series, groups, before=cohort)
    elif series.baseline_ms is None and any(r.rejected is None for r in cohort.accepted):
        series.baseline_ms = summarize(cohort.accepted, BASELINE, None).time_ms
    if interruption:
        raise interruption


def _measured(
    run: Session, cohort: Cohort, held: Mapping[str, Held], stop: Stop, under_way: UnderWay
) -> dict[str, Held]:
    """Fills the cohort in: times, launches, who disturbed the others. Where somebody did, those who did not."""
    tell, start = _teller(run, held), partial(_fresh, run, held)
    candidates = [arm for arm in cohort.arms if not arm.trusted]
    race.race(cohort, run.reference, stop, tell, start, under_way.note)
    for arm in candidates:
        if not run.device.emulated and arm.fault is None:
            candidate, _, finding = held[arm.name]
            arm.fault = launches.look(arm.subject, candidate, finding, run.reference, run.cases)
    under_way.note()
    if not culprit.convict(cohort, run.reference, start, tell, under_way.note):
        return {}
    return {arm.name: held[arm.name] for arm in candidates if arm.fault is None}


def _arm(run: Session, held: Mapping[str, Held], name: str, processes: ExitStack, *, reported: bool) -> Arm:
    """With the candidate's process, or a new one in place of one that has ended; its last one ends with `processes`."""
    fault, subject = None, held[name][1]
    if subject.closed:
        try:
            subject = _fresh(run, held, name)
        except (Fault, Refused) as error:
            fault = error if isinstance(error, Fault) else Fault(Status.RUNTIME_ERROR, str(error))
    arm = Arm(name, subject, reported=reported, fault=fault)
    processes.callback(lambda: arm.subject.close())
    return arm


def _fresh(run: Session, held: Mapping[str, Held], name: str) -> Subject:
    """Another process of a candidate, or of the reference."""
    if name == BASELINE:
        return run.loaded(str(run.problem.path), run.problem.text, "Model")
    return run.loaded(file_name(held[name][0]), held[name][0].source, "ModelNew")


def _groups(run: Session, passed: Collection[str]) -> list[list[str]]:
    """Who is timed together; nobody, where nobody passed."""
    baseline = run.settings.baseline
    if baseline not in passed:
        return cohorts(list(passed))
    return [[baseline, *group] for group in cohorts([name for name in passed if name != baseline], COHORT - 1) or [[]]]


def _stop(run: Session, groups: int) -> Stop:
    settings = run.settings
    default = run.device.budget_s / 4 if settings.quick else run.device.budget_s
    return Stop((settings.budget_s or default) / groups, run.device.half_width, settings.rounds, settings.baseline)


def _teller(run: Session, names: Collection[str]) -> Callable[[str], None]:
    """Tells of something that all of them do."""

    def tell(text: str) -> None:
        for name in names:
            run.observer.stage(name, text)

    return tell


@contextmanager
def companions(run: Session) -> Iterator[list[Arm]]:
    """The baselines and the sentinel, running. Raises NoCompanion."""
    arms: list[Arm] = []
    try:
        for name, file, source, class_name in builtin.companions(
            run.problem, run.device.emulated, run.settings.baseline
        ):
            run.observer.stage("", f"starting {name}")
            try:
                subject = run.loaded(file, source, class_name, builtin.COMPILED.get(name))
            except (Fault, Refused) as error:
                raise NoCompanion(f"{name} cannot be started: {error}") from None
            arms.append(Arm(name, subject, trusted=True, reported=name in builtin.BASELINES))
        yield arms
    finally:
        for arm in arms:
            arm.subject.close()
