"""One run: the order in which things happen. What each step does is elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Protocol

import psutil
import torch

from kernel_harness import results
from kernel_harness.candidate import Candidate
from kernel_harness.cases import Case, Reference, plan
from kernel_harness.cohort import COHORT
from kernel_harness.device import Device
from kernel_harness.errors import EnvironmentLacking, UserError
from kernel_harness.examine import CannotStart, Fault, Finding, Refused, Subject, examine, file_name
from kernel_harness.paths import PROBLEMS
from kernel_harness.problem import Problem
from kernel_harness.results import Journal, Result
from kernel_harness.sanitizer import sanitize
from kernel_harness.series import Held, Series, cohort_by_cohort
from kernel_harness.settings import Settings
from kernel_harness.spawn import Template
from kernel_harness.status import Status
from kernel_harness.summary import Context, of_candidate

# One nvcc with torch's headers takes 3 GB; the emulator's units take less than one.
_BUILD_BYTES = {True: 1 << 30, False: 3 << 30}
# Each that has been checked holds a process until it is timed: of a thousand candidates not all at once.
MOST_AT_ONCE = 32
_TICK_S = 0.05


class Observer(Protocol):
    """Who is told what happens, as it happens."""

    def stage(self, kernel: str, text: str) -> None:
        """A candidate has begun something."""

    def settled(self, result: Result) -> None:
        """A result is final, and on the disk."""


class Nobody:
    """An Observer that looks away."""

    def stage(self, kernel: str, text: str) -> None:
        """Nothing is shown."""

    def settled(self, result: Result) -> None:
        """Nothing is shown."""


class Session:
    """What runs of one problem on one device share: a warm template, the reference, the cases.

    As a context manager it ends with every process it started. Entering it raises NoCompiler where nothing can
    be built here; making one raises UserError for a problem or a case that cannot be used. Where there is a `journal`,
    rounds are on the disk beside it until they are results.
    """

    def __init__(
        self,
        problem: Problem,
        device: Device,
        settings: Settings,
        observer: Observer,
        template: Template | None = None,
        hidden: Sequence[Path] = (),
        journal: Journal | None = None,
    ) -> None:
        self.template = template or Template()
        self.problem, self.device, self.settings, self.observer = problem, device, settings, observer
        self.journal = journal
        self.reference = Reference(problem, "cpu" if device.emulated else device.torch_device, settings.precision)
        self.cases = _chosen(plan(problem, settings.seed, quick=settings.quick), settings.case)
        # A worker has no use for the question's wording, and none for what others' results say of its inputs.
        self._hidden = [problem.path.absolute(), PROBLEMS, *hidden]

    def __enter__(self) -> Session:
        self.observer.stage("", "preparing the device (the first time takes half a minute)")
        self.device.prepare()
        environment = {**self.device.environment(), **results.environment()}
        self.template.prepare(self.device.name, self._hidden)
        self.context = Context(
            self.problem, self.device, self.settings, self.cases, environment, self.template.isolation
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.template.close()

    def judge(self, candidates: Sequence[Candidate], keep: Callable[[Result], None]) -> list[Result]:
        """Builds, checks and times the candidates. `keep` gets every result as soon as it is final."""
        self.context = replace(self.context, run=results.new_run_id())
        passed: dict[str, Held] = {}
        settled: list[Result] = []

        def settle(result: Result) -> None:
            keep(result)
            settled.append(result)
            self.observer.settled(result)

        turn, series = _Turn(self), Series(-(-len(candidates) // COHORT) if len(candidates) > MOST_AT_ONCE else 0)
        try:
            for batch in _batches(candidates, self.settings.baseline):
                for candidate, subject, finding in _examined(self, batch, turn):
                    if subject is not None and finding.status is Status.PASSED and self.settings.case is None:
                        if len(passed) >= COHORT:
                            subject.close()  # what it holds of the device's memory others may need meanwhile
                        passed[candidate.name] = (candidate, subject, finding)
                        keep(of_candidate(self.context, candidate, finding))
                    else:
                        settle(of_candidate(self.context, candidate, finding))
                if passed:
                    turn.take()
                for result in cohort_by_cohort(self, passed, series):
                    settle(result)
                passed = {name: held for name, held in passed.items() if name == self.settings.baseline}
        except torch.OutOfMemoryError as error:  # the judge's own: a worker's is that candidate's fault
            raise EnvironmentLacking(
                f"There is not enough memory on the device to work out the right answer: {error}\nEnd what else uses "
                "the device, or run the candidates one by one with --kernel. What had been measured is kept."
            ) from None
        finally:
            for _, subject, _ in passed.values():
                subject.close()
            turn.close()
        return settled

    def new_subject(self) -> Subject:
        """A worker on the device that holds nothing yet. Raises Fault."""
        try:
            return Subject(self.template, self.device.name, self.settings.limits)
        except CannotStart as error:  # what others hold of the device may be what it lacks
            raise Fault(Status.RUNTIME_ERROR, str(error)) from None

    def loaded(self, file: str, source: str, name: str, compiled: str | None = None) -> Subject:
        """A new process, ready to be called. Raises Fault or Refused."""
        subject = self.new_subject()
        try:
            subject.load(file, source, name)
            subject.make(self.problem, compiled=compiled)
        except BaseException:
            subject.close()
            raise
        return subject


def judge(
    problem: Problem,
    candidates: Sequence[Candidate],
    device: Device,
    settings: Settings,
    observer: Observer,
    keep: Callable[[Result], None],
) -> list[Result]:
    """One Session that judges once."""
    with Session(problem, device, settings, observer) as session:
        return session.judge(candidates, keep)


def _batches(candidates: Sequence[Candidate], baseline: str) -> Iterator[Sequence[Candidate]]:
    """As many as may be held at a time; a kernel that all are measured against comes first."""
    ordered = sorted(candidates, key=lambda candidate: candidate.name != baseline)
    for start in range(0, len(ordered), MOST_AT_ONCE):
        yield ordered[start : start + MOST_AT_ONCE]


class _Turn:
    """The device, from the first check on: builds need none, and another run may be using it meanwhile."""

    def __init__(self, run: Session) -> None:
        self._run, self._held = run, ExitStack()
        self._taken = False

    def take(self) -> None:
        """Returns once no other run uses the device."""
        if not self._taken:
            waiting = lambda: self._run.observer.stage("", "waiting: another run is using the device")  # noqa: E731
            self._held.enter_context(self._run.device.exclusive(waiting))
            self._taken = True

    def close(self) -> None:
        """Lets the next run have it."""
        self._held.close()


def _examined(
    run: Session, candidates: Sequence[Candidate], turn: _Turn
) -> Iterator[tuple[Candidate, Subject | None, Finding]]:
    """Builds side by side; checks one at a time, as soon as something is built."""
    with ThreadPoolExecutor(_jobs(run)) as pool:
        queued = time.perf_counter()
        waiting = {pool.submit(_build, run, c, queued): c for c in candidates}
        try:
            while waiting:
                # In ticks: an interruption that comes just before a longer wait would be felt after it.
                for future in wait(waiting, _TICK_S, FIRST_COMPLETED).done:
                    candidate = waiting.pop(future)
                    turn.take()
                    yield _check(run, candidate, future)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            run.template.close()  # ends the builds under way, so that nobody waits for them
            raise


def _build(run: Session, candidate: Candidate, queued: float) -> tuple[Subject | None, Finding]:
    start = time.perf_counter()
    finding = Finding(queue_s=start - queued)
    run.observer.stage(candidate.name, "building")
    subject = None
    try:
        subject = run.new_subject()
        subject.load(file_name(candidate), candidate.source, "ModelNew")
    except Fault as fault:
        finding.status, finding.reason, finding.log = fault.status, fault.reason, fault.log
    finding.builds = subject.builds if subject is not None else []
    finding.build_s = time.perf_counter() - start
    run.observer.stage(candidate.name, "waiting")
    return subject, finding


def _check(
    run: Session, candidate: Candidate, future: Future[tuple[Subject | None, Finding]]
) -> tuple[Candidate, Subject | None, Finding]:
    subject, finding = future.result()
    if subject is not None and finding.status is Status.PASSED:
        try:
            examine(subject, finding, run.reference, run.cases, lambda text: run.observer.stage(candidate.name, text))
        except torch.OutOfMemoryError:
            subject.close()
            torch.cuda.empty_cache()
            assert finding.failed_case
            run.reference.expectation(finding.failed_case)  # raises where it is not the candidate that takes the memory
            finding.status = Status.RUNTIME_ERROR
            finding.reason = "It leaves too little of the device's memory to work out the right answer."
        _add_remark(run, candidate, finding)
        if finding.status is Status.PASSED and run.settings.case is None:
            try:
                subject.make(run.problem)
            except (Fault, Refused) as fault:
                finding.status, finding.reason = Status.RUNTIME_ERROR, str(fault)
        run.observer.stage(candidate.name, "waiting")
    if subject is not None:
        subject.worker.pause() if finding.status is Status.PASSED else subject.close()
    return candidate, subject, finding


def _add_remark(run: Session, candidate: Candidate, finding: Finding) -> None:
    """Under emulation, what the sanitizer sees where a compiled kernel failed: beside the reason, never instead."""
    worth = finding.status in (Status.WRONG_VALUES, Status.CRASHED, Status.NONDETERMINISTIC)
    if worth and run.device.emulated and finding.builds and finding.failed_case:
        run.observer.stage(candidate.name, "looking for its mistake")
        finding.remark = sanitize.remark(run.template, run.problem, candidate, finding.failed_case, run.settings.seed)
        finding.reason += f"\nSanitizer: {finding.remark}" if finding.remark else ""


def _chosen(cases: list[Case], wanted: str | None) -> list[Case]:
    if wanted is None:
        return cases
    chosen = [case for case in cases if case.name == wanted]
    if not chosen:
        raise UserError(f"no case {wanted!r}; this run has " + ", ".join(c.name for c in cases))
    return chosen


def _jobs(run: Session) -> int:
    if run.settings.jobs:
        return run.settings.jobs
    by_memory = int(psutil.virtual_memory().available // _BUILD_BYTES[run.device.emulated])
    return max(1, min(len(os.sched_getaffinity(0)), by_memory))


def results_folder(root: Path, problem: Problem, device: Device) -> Path:
    """Where a problem's results on a device are kept."""
    return root / problem.name / device.label
