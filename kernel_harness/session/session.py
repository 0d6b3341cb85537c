"""The session: builds, checks and times candidates of one problem on one device, in one run or in several."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from kernel_harness.checking import lower_bound, timed_shapes
from kernel_harness.checking.cases import Case, Reference, plan
from kernel_harness.checking.lower_bound import LowerBound
from kernel_harness.checking.plan import large
from kernel_harness.core.closing import Closing
from kernel_harness.core.errors import EnvironmentLacking, UserError
from kernel_harness.core.paths import git_folders, hidden_from_workers
from kernel_harness.core.phases import phase
from kernel_harness.core.remark import Remark, RemarkKind
from kernel_harness.device import Device
from kernel_harness.explain import overflow, sensitivity
from kernel_harness.problem.candidate import Candidate
from kernel_harness.problem.known import known
from kernel_harness.problem.problem import Problem, Shape
from kernel_harness.results import record
from kernel_harness.results.environment import environment as host_environment
from kernel_harness.results.record import Result
from kernel_harness.session.checks import BuildsAhead, check_all, explain, sanitize
from kernel_harness.session.cohorts import COHORT, Series, time_cohorts
from kernel_harness.session.further import FurtherPlace, FurtherTiming
from kernel_harness.session.run import Observer, RunContext
from kernel_harness.session.settings import Settings
from kernel_harness.session.summary import by_the_rules, of_trial
from kernel_harness.session.trusted_arms import TrustedArms
from kernel_harness.trial.trial import State, Trial
from kernel_harness.workers.fork_server import ForkServer

# The largest number of candidates in a batch. A checked candidate holds a worker process until it is timed, so a
# thousand candidates cannot be checked at once.
MOST_AT_ONCE = 32


class Session(Closing):
    """What the runs of one problem on one device share: the fork server, the reference, the cases, the baselines.

    A Session is a context manager. At the end of the context it ends every process that it started. Worker processes
    cannot read the paths in `hidden`. Several Sessions can use one `fork_server`, one after the other or with builds of
    the one during checks of the other; they must then be given the same paths in `hidden`, and their caller closes the
    fork server. `others` must then return these Sessions. Without `fork_server`, a Session has its own.
    Entering the context raises EnvironmentLacking if this machine lacks something for the device, such as a compiler,
    and UserError for a problem that cannot be used or a case that does not exist.
    """

    def __init__(
        self,
        problem: Problem,
        device: Device,
        settings: Settings,
        observer: Observer,
        fork_server: ForkServer | None = None,
        hidden: Sequence[Path] = (),
    ) -> None:
        self.fork_server = fork_server or ForkServer()
        self._owns_fork_server = fork_server is None
        self.problem, self.device, self.settings, self.observer = problem, device, settings, observer
        self.reference = Reference(problem, "cpu" if device.emulated else device.torch_device, settings.precision)
        self.further = [
            FurtherPlace(Reference(there, self.reference.device, settings.precision), device, settings.precision)
            for there in timed_shapes.further(problem, settings.time_shapes, settings.seed)
        ]
        self.trusted_arms = TrustedArms()
        self.others: Callable[[], Collection[Session]] = tuple
        self._ahead = BuildsAhead()
        # Workers must not read the problem file and its history, nor the results of other candidates, which contain
        # facts about the inputs.
        own = [problem.path.absolute(), *git_folders([problem.path.parent])]
        self._hidden = list(dict.fromkeys([*own, *hidden_from_workers(), *hidden]))

    def __enter__(self) -> Session:
        with ThreadPoolExecutor(1) as beside:
            # The preparation waits for other processes, and the plan needs no device. Both have ended before a build
            # begins, and so before a timed call that the plan could disturb.
            planned = phase("planning")(beside.submit(self._plan).result)
            if self.settings.case is not None:
                planned()  # a wrong name is told before the device is prepared
            environment = self._prepare_device()
            self.cases = planned()
        self.reference.at(self.cases[0]).draw_ahead()
        self.context = RunContext(
            self.problem, self.device, self.settings, self.cases, environment, self.fork_server.isolation,
            further=self.further_shapes, reference=self.reference, observer=self.observer, fork_server=self.fork_server,
        )  # fmt: skip
        return self

    @property
    def further_shapes(self) -> tuple[Shape, ...]:
        """Returns the shapes at which candidates are timed after the problem's own size."""
        return tuple(place.reference.problem.shape for place in self.further)

    def _plan(self) -> list[Case]:
        quick, further = self.settings.quick, self.further_shapes
        cases = plan(self.problem, self.settings.seed, quick=quick, timed_too=further)
        if self.settings.case is None:
            return cases
        return _chosen([*cases, *large(self.problem, self.settings.seed)], self.settings.case)

    @phase("device")
    def _prepare_device(self) -> dict[str, Any]:
        """Prepares the device and the fork server. Returns the environment, as each result records it."""
        self.observer.stage("", "preparing the device")
        self.device.prepare(lambda text: self.observer.stage("", text))
        for reference in (self.reference, *(place.reference for place in self.further)):
            reference.note_free_memory()
        environment = {**self.device.environment(), **host_environment()}
        self.fork_server.prepare(self.device.name, self._hidden)
        return environment

    def close(self) -> None:
        """Ends every process that this session started. The end of a `with` block calls this method."""
        self.free_memory()
        if self._owns_fork_server:
            self.fork_server.close()
        self._ahead.close()

    def free_memory(self, *, builds: bool = False) -> None:
        """Ends the kept worker processes of the baselines, and frees the reference's cached inputs and answers.

        With `builds`, also ends the processes of candidates that were built ahead. The next run starts the processes,
        and computes the answers again; the built libraries are in the build cache.
        """
        self.trusted_arms.close()
        self.reference.forget()
        if builds:
            self._ahead.end_processes()

    @cached_property
    def problem_remarks(self) -> tuple[Remark, ...]:
        """Returns the remarks on wrong answers that the checks accept and on the reference's own error.

        They are computed at the first use, when a candidate has passed, and kept for the other candidates and for later
        runs of the same cases on a device like this one.
        """

        def computed() -> list[str]:
            return [remark.text for remark in sensitivity.remarks(self.reference, self.cases)]

        kinds = [case.name for case in self.cases if case.timed_shape]
        where = {"device": self.device.label, "cases": " ".join(kinds), "precision": str(self.settings.precision)}
        return tuple(Remark(RemarkKind.PROBLEM, text) for text in known(self.problem, "remarks", computed, **where))

    @cached_property
    def lower_bound(self) -> LowerBound | None:
        """Returns the bytes that every correct kernel moves; None on a device whose speed is not known.

        They are derived at the first use, when a candidate has passed, and kept for the other candidates.
        """
        known = self.device.peaks() is not None
        return lower_bound.derive(self.reference, self.settings.precision) if known else None

    def build_ahead(self, candidate: Candidate) -> None:
        """Begins to build a candidate that a later call of `judge` will name. Returns at once.

        The build runs in another thread, also while `judge` checks and times other candidates.
        """
        self._ahead.start(self.context, candidate)

    def is_built(self, candidate: Candidate) -> bool:
        """Returns whether the build that `build_ahead` began for the candidate has ended, successfully or not."""
        return self._ahead.is_done(candidate)

    def judge_one(self, candidate: Candidate) -> list[Result]:
        """Builds, checks and times one candidate beside the kept baselines. Returns its result and the baselines'.

        The candidate's result comes first. If the candidate fails its checks, the baselines have no results.
        Raises EnvironmentLacking if the device has too little memory to compute the right answer.
        """
        results = self.judge([candidate], lambda result: None)
        return sorted(results, key=lambda result: result.is_baseline)

    def judge(self, candidates: Sequence[Candidate], keep: Callable[[Result], None], run: str = "") -> list[Result]:
        """Builds, checks and times the candidates, and returns their final results and those of the baselines.

        `keep` is called with each result as soon as the result is final. It is also called with an interim result of
        each candidate that has passed its checks and waits to be timed. A candidate that failed while the judge found
        the device short of memory is judged a second time, alone and without what this session and the `others` hold:
        baselines, candidates that were built ahead, cached answers. Its first result is dropped. `run` is the id of the
        run, if it goes on in several sessions. Raises EnvironmentLacking if the device has too little memory to compute
        the right answer.
        """

        def finish(result: Result) -> None:
            keep(result)
            self.observer.settled(result)

        def finish_unless_lacking(result: Result) -> None:
            if not _to_be_judged_again(result):
                finish(result)

        run = run or record.new_run_id()
        results = self._judge(run, candidates, keep, finish_unless_lacking)
        lacking = {result.kernel for result in results if _to_be_judged_again(result)}
        for candidate in candidates:
            if candidate.name in lacking:
                for each in (self, *self.others()):
                    each.free_memory(builds=True)
                results = [result for result in results if result.kernel != candidate.name]
                results += self._judge(run, [candidate], keep, finish)
        return results

    def _judge(
        self, name: str, candidates: Sequence[Candidate], keep: Callable[[Result], None],
        finish: Callable[[Result], None],
    ) -> list[Result]:  # fmt: skip
        """Judges the candidates once, in the run of this id (`name`).

        `keep` gets the interim results, and `finish` those that are also returned.
        """
        run = replace(self.context, run=name, kernels=len(candidates))
        expected = -(-len(candidates) // COHORT) if len(candidates) > MOST_AT_ONCE else 0
        events = _Events(run, keep, finish, FurtherTiming(self.further, expected))
        turn, waiting, series = _DeviceTurn(run), dict[str, Trial](), Series(expected, events.timed)

        def take_device() -> None:
            turn.take()
            self.trusted_arms.start_ahead(run)

        try:
            for batch in _batches(candidates, run.settings.baseline):
                for trial in check_all(run, batch, take_device, self._ahead, events.entered):
                    if trial.fault is not None:
                        explain(run, trial)
                    else:
                        trial.remarks += overflow.on_passed(trial)
                        if run.settings.case is None and not trial.untimed:
                            run = self._known(run, events)
                            _wait(trial, waiting)
                            continue
                        sanitize(run, [trial])
                    trial.enter(State.DONE)
                sanitize(run, [trial for trial in waiting.values() if trial.state is not State.DONE])
                time_cohorts(run, self.trusted_arms, waiting, series)
                events.further.time(run, waiting)
                events.release()
                waiting = {name: trial for name, trial in waiting.items() if name == run.settings.baseline}
        except torch.OutOfMemoryError as error:  # raised in the judge; in a worker it is a fault of the candidate
            raise EnvironmentLacking(
                f"The device has too little free memory to compute the right answer: {error}\nEnd the other programs "
                "that use the device, or run the candidates one by one with --kernel. The results so far are kept."
            ) from None
        finally:
            for trial in waiting.values():
                trial.close()
            turn.close()
            events.release()
        return events.settled

    def _known(self, run: RunContext, events: _Events) -> RunContext:
        """Returns the run with what is known of the problem once a candidate has passed. `events` gets it, too."""
        if not events.know_the_problem:
            events.know_the_problem = True
            events.run = replace(run, problem_remarks=self.problem_remarks, lower_bound=self.lower_bound)
        return events.run


class _Events:
    """Turns the events of a run's trials into results.

    `keep` gets the interim results, and `finish` the final ones, which are collected in `settled`. `further` holds the
    results of kernels that are yet to be timed at further shapes. `run` is replaced once the problem is known
    (`Session._known`).
    """

    def __init__(
        self, run: RunContext, keep: Callable[[Result], None], finish: Callable[[Result], None], further: FurtherTiming
    ) -> None:
        self.run, self._keep, self._finish, self.further = run, keep, finish, further
        self.settled: list[Result] = []
        self.know_the_problem = False

    def entered(self, trial: Trial) -> None:
        """Receives the news that a trial has entered a state."""
        if trial.state is State.WAITING:
            self._keep(of_trial(self.run, trial))
        elif trial.state is State.DONE:
            self.timed(of_trial(self.run, trial))

    def timed(self, result: Result) -> None:
        """Receives a result at the problem's own size, which is final unless its kernel is timed at further shapes."""
        if not self.further.hold(result):
            self._settle(result)

    def release(self) -> None:
        """Settles the results that are held."""
        for result in self.further.take():
            self._settle(result)

    def _settle(self, result: Result) -> None:
        result = by_the_rules(result)
        self.settled.append(result)
        self._finish(result)


def _wait(trial: Trial, waiting: dict[str, Trial]) -> None:
    """Adds a trial that passed its checks to those that wait to be timed.

    If these already fill the first cohort, ends the candidate's worker process, which frees device memory. A new
    process is started when the candidate's cohort is timed.
    """
    if len(waiting) >= COHORT:
        trial.close()
    waiting[trial.name] = trial
    trial.enter(State.WAITING)


def _to_be_judged_again(result: Result) -> bool:
    return result.lacked_memory and not result.is_baseline


def _batches(candidates: Sequence[Candidate], baseline: str) -> Iterator[Sequence[Candidate]]:
    """Yields the candidates in batches of at most MOST_AT_ONCE. The candidate named `baseline`, if any, comes first."""
    ordered = sorted(candidates, key=lambda candidate: candidate.name != baseline)
    for start in range(0, len(ordered), MOST_AT_ONCE):
        yield ordered[start : start + MOST_AT_ONCE]


class _DeviceTurn:
    """One run's exclusive use of the device. It begins at the first check: builds do not need the device."""

    def __init__(self, run: RunContext) -> None:
        self._run, self._held = run, ExitStack()
        self._taken = False

    def take(self) -> None:
        """Waits until no other run uses the device, and reserves the device. Does nothing if it is already reserved."""
        if not self._taken:
            self._held.enter_context(self._run.device.exclusive(self._waiting))
            self._taken = True

    def close(self) -> None:
        """Ends the exclusive use, so that another run can use the device."""
        self._held.close()

    def _waiting(self) -> None:
        self._run.observer.stage("", "waiting: another run is using the device")


def _chosen(cases: list[Case], wanted: str) -> list[Case]:
    chosen = [case for case in cases if case.name == wanted]
    if not chosen:
        names = [case.name for case in cases]
        close = difflib.get_close_matches(wanted, names, n=1, cutoff=0.8)
        hint = f"did you mean {close[0]!r}?" if close else f"this run has the cases {', '.join(names)}"
        raise UserError(f"there is no case {wanted!r}; {hint}")
    return chosen
