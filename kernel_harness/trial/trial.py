"""The trial of one candidate: its worker process, its build, its checks, and what was found out about it."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import psutil
import torch

from cuda_on_cpu.core.tell import Tell, silent
from kernel_harness.checking import hypotheses, narrow_formats
from kernel_harness.checking.answers import compare, compare_bits, forbidden_write, with_changed_inputs
from kernel_harness.checking.cases import Case, Reference
from kernel_harness.checking.compared import Expectation
from kernel_harness.checking.verify import Check, same
from kernel_harness.core.phases import phase
from kernel_harness.core.remark import Remark, RemarkKind
from kernel_harness.core.status import Status
from kernel_harness.ipc import tensors
from kernel_harness.ipc.packed import Packed, moved
from kernel_harness.problem import sizing
from kernel_harness.problem.candidate import Candidate, file_name
from kernel_harness.problem.problem import Problem, shape_text
from kernel_harness.timing.measurements import Measurements
from kernel_harness.trial import file_sizes
from kernel_harness.workers.faults import Fault, Refused
from kernel_harness.workers.model_process import ModelProcess, ModelSource
from kernel_harness.workers.worker_client import Answer, WorkerClient

# An honest process holds its CUDA context, at most 4 GiB of memory that is shared with the judge, and what its model
# keeps between calls.
_CONTEXT_BYTES = 6 << 30
_MOST_HELD = 2  # in what a call of the reference takes

_NOT_TIMED = "it refuses the sizes that were chosen for a CPU"
_REFUSES_ALL = (
    "The kernel refuses the sizes that a CPU can check. Judge it on a GPU, at the sizes in the problem's file. The "
    "refusal: {}"
)
_FAILS_IN_FILE = "At the sizes in the problem's file ({}), which were not run, the kernel fails on a GPU: {}"
_LARGE_CASE_BYTES = 1 << 33  # of the host's memory, for the candidate and for the right answer in two precisions
_CAPPED = (
    "at the sizes in the problem's file, the grid is smaller for the work than in the checks, and with a 64th of its "
    "blocks the kernel is wrong. Check that each thread loops over the work beyond the grid, or that the host code "
    "gives each block its share."
)
_RAISES = re.compile(r"\b(raise|throw|assert|TORCH_CHECK\w*|AT_ASSERT\w*|AT_ERROR)\b")
_NO_CASE = "No case could be checked: none suits both the reference and the candidate. Choose another --case."

_LOG = logging.getLogger(__name__)


class State(StrEnum):
    """How far a trial has come. The states follow each other in this order; a trial that fails skips some."""

    QUEUED = "queued"
    BUILT = "built"  # or failed to build; the worker process is paused
    CHECKED = "checked"
    WAITING = "waiting"  # passed the checks, and waits to be timed
    TIMED = "timed"
    DONE = "done"  # has its verdict, and no process


@dataclass(frozen=True)
class WrongAnswer:
    """An answer with wrong values, its check, and what was expected."""

    check: Check
    answer: Answer
    expectation: Expectation


class Trial(ModelProcess):
    """One candidate from its file to its verdict.

    `start`: starts a worker process without a model. `tell`: gets a text for each step. `entered`: gets the trial
    whenever it has entered another state. `resized`: returns the reference and the cases at other sizes, for a
    candidate that refuses the timed sizes; None if there are no others. `large`: returns cases that decide whether a
    grid is too small for the sizes in the problem's file.

    `building` is done when the build has ended. `is_discarded`: `discard` was called.
    The candidate has passed so far if `fault` is None. `checks` has the verdict on each case that gave an output, and
    for a repeated case also the verdict on the second call. `refused` has the shapes (values of the size constants, as
    text) that the candidate refused. `failed_case` is the case in which the candidate failed; None if it failed outside
    the cases or not at all. `wrong` is its wrong answer until that is explained, if wrong values are why it failed.
    `remarks` is what explainers said of a candidate that failed, and what the sanitizer found in one that passed.
    `builds` has for each library that the candidate built: its name, the seconds it took, and whether it was cached.
    `lacking` are sentences on what the emulation cannot run in these libraries. `printed` is the end of what the
    candidate printed in the build and the checks. `first_call_ms` is the judge's time of the first call; None if no
    call returned. `launches` is the number of the candidate's own kernels in one call, as the worker reports it, and
    `own_share` the share of the work that these kernels do, from 0 to 1; None if unknown.
    `measured` has the measurements of the trial's cohort, which took `timing_s` seconds, and `scale_ms` the time of
    "torch" in the first cohort, in ms; None before they are known. `untimed` says why there is no time, if so.
    """

    def __init__(
        self, candidate: Candidate, start: Callable[[], WorkerClient], reference: Reference, cases: Sequence[Case],
        tell: Tell = silent, entered: Callable[[Trial], None] = lambda trial: None,
        resized: Callable[[], tuple[Reference, Sequence[Case]] | None] = lambda: None,
        large: Callable[[], Sequence[Case]] = tuple,
    ) -> None:  # fmt: skip
        super().__init__(ModelSource(file_name(candidate), candidate.source, "ModelNew"), start, reference)
        self._own = reference.problem
        self.candidate, self.reference, self.cases = candidate, reference, cases
        self.tell, self.entered, self._resized, self._large = tell, entered, resized, large
        self.state = State.QUEUED
        self.building: Future[None] = Future()
        self.is_discarded = False
        self.fault: Fault | None = None
        self.checks: list[Check] = []
        self.refused: list[str] = []
        self.failed_case: Case | None = None
        self.wrong: WrongAnswer | None = None
        self.remarks: list[Remark] = []
        self.builds: tuple[Mapping[str, Any], ...] = ()
        self.printed = ""
        self.lacking: tuple[str, ...] = ()
        self.first_call_ms: float | None = None
        self.launches: int | None = None
        self.own_share: float | None = None
        self.measured: Measurements | None = None
        self.scale_ms: float | None = None
        self.untimed = ""
        self.queue_s = self.build_s = self.check_s = self.timing_s = 0.0
        self._queued = time.perf_counter()
        self._made_for: Problem | None = None
        self._oracle_missing = ""  # why the last expectation has no float64

    @property
    def name(self) -> str:
        """Returns the candidate's name."""
        return self.candidate.name

    @property
    def status(self) -> Status:
        """Returns the verdict so far."""
        return self.fault.status if self.fault else Status.PASSED

    def enter(self, state: State) -> None:
        """Notes that the trial has reached a state. Ends the worker process of a trial that is DONE."""
        self.state = state
        if state in (State.BUILT, State.WAITING):
            self.tell(State.WAITING)
        if state is State.DONE:
            self.close()
        self.entered(self)

    def fail(self, fault: Fault) -> None:
        """Ends the trial's success. The reason names the case that failed, if there is one."""
        reason = fault.reason
        if self.failed_case and self.failed_case.name not in reason:
            reason += f"\nThe failure was at the case {self.failed_case.name}."
        # A new object: the frames in the traceback of `fault` hold the inputs, until Python looks for cycles.
        self.fault = Fault(fault.status, reason, fault.log, lacked_memory=fault.lacked_memory)

    def begin_build(self, pool: Executor, *, with_constructor: bool) -> None:
        """Queues the `build`, and returns at once."""
        self.building = pool.submit(self.build, with_constructor=with_constructor)

    def discard(self) -> None:
        """Ends the worker process as soon as the build has ended, which goes on. Returns at once."""
        if not self.is_discarded:
            self.is_discarded = True
            self.building.add_done_callback(lambda _: self.close())

    def build(self, *, with_constructor: bool = False) -> None:
        """Starts a worker process, executes the kernel file there, which builds its extensions, and pauses it.

        If `with_constructor`, extensions that the model's constructor builds are built, too (`_build_in_constructor`),
        but only if the file contains the name of a function that builds, such as `load_inline`, and its execution built
        nothing. Any thread may call this method.
        """
        began = time.perf_counter()
        self.queue_s = began - self._queued
        self.tell("building")
        try:
            self.client = self._started()
            self._load(self.client)
            # Until its checks begin, the judge reads no message of the worker, and checks none of its limits.
            self.pause()
            if with_constructor and self.candidate.names_a_build and not self.client.builds.made:
                self._build_in_constructor()
        except Fault as fault:
            self.fail(fault)
        finally:
            self.build_s = time.perf_counter() - began
            self.enter(State.BUILT)

    def _build_in_constructor(self) -> None:
        """Builds the model in a further worker process, which is then ended.

        Only what it builds is kept: libraries in the build cache, and the failures of builds. Anything else that
        happens there, for example for lack of memory beside other candidates, is not part of the verdict.
        """
        try:
            with closing(self.further()) as client:
                client.make(self.reference.problem)
        except Exception as error:  # a fault, or a problem that cannot be used: the checks find it again
            _LOG.info("%s: the constructor failed ahead: %s: %s", self.name, type(error).__name__, error)

    @phase("checks")
    def check(self, *, ready_for_timing: bool = True) -> None:
        """Checks the candidate on every case until a case fails. Does nothing but note the time if its build failed.

        If `ready_for_timing` is True, a candidate that passed then has a model for the sizes at which it will be timed.
        Raises torch.OutOfMemoryError if the device has too little memory for the right answer and the candidate is not
        at fault (`_out_of_memory`), and UserError if the reference itself cannot run.
        """
        began = time.perf_counter()
        try:
            if self.fault is None:
                self._try_all()
                if not self.checks and not self.refused:
                    raise Fault(Status.UNSUPPORTED, _NO_CASE)
                if ready_for_timing and self.launches:
                    self._check_file_sizes()
                if ready_for_timing and not self.untimed:
                    self.ready(self.reference.problem)
        except Fault as fault:
            self.fail(fault)
        except Refused as refusal:
            self.fail(refusal.as_fault())
        except torch.OutOfMemoryError as error:
            self.fail(self._out_of_memory(error))
        self.check_s = time.perf_counter() - began
        self.builds = tuple(self.client.builds.made if self.client else ())
        self.printed = self.client.printed if self.client else ""
        self.lacking = self.client.lacking() if self.client else ()
        self.enter(State.CHECKED)

    @phase("models")
    def make(self, problem: Problem) -> bool:
        """Builds the model for the sizes of `problem` (`WorkerClient.make`)."""
        return self.running.make(problem)

    def ready(self, problem: Problem) -> bool:
        """Builds the model for the sizes of `problem`, unless that of the last check has these, and has suited them.

        Returns what `make` returns.
        """
        if problem is self._made_for:
            return True
        self._made_for = None  # the constructor may refuse the sizes
        if not self.make(problem):
            return False
        self._made_for = problem
        return True

    def _try_all(self) -> None:
        """Tries all cases, at other sizes if the candidate refuses the timed ones. Raises Fault if a check fails.

        Raises Refused if it refuses all sizes by an error of a library, and without other sizes.
        """
        try:
            self._try_each()
        except Refused as refusal:
            others = self._resized()
            if others is None:
                raise
            if not self._suits(*others):
                if self.refuses_by_a_statement(str(refusal)):
                    self._check_file_sizes()
                    raise Fault(Status.UNSUPPORTED, _REFUSES_ALL.format(refusal), refusal.log) from None
                raise
            self.untimed = _NOT_TIMED

    @phase("dry run")
    def _check_file_sizes(self) -> None:
        """Checks what can be told of the sizes in the problem's file, if those of the cases were chosen for a CPU.

        Raises Fault if a kernel does not compile or a launch exceeds a limit of the device there, if a statement of the
        candidate's file refuses these sizes, or if the kernel is wrong in large cases, which are tried if its grid
        seems to be too small there.
        """
        problem = sizing.in_file(self._own)
        if problem is None:
            return
        large = self._large() if self.checks and not self.untimed else []
        where = shape_text(dict(problem.shape))
        try:
            failure, seems_capped = file_sizes.check(self, problem, self.reference.at(large[-1]) if large else None)
        except Fault as fault:
            self.failed_case = None
            raise Fault(fault.status, _FAILS_IN_FILE.format(where, fault.reason), fault.log) from None
        if failure:
            self.failed_case = None  # the one that the candidate refuses
            raise Fault(Status.RUNTIME_ERROR, _FAILS_IN_FILE.format(where, failure))
        if seems_capped:
            for case in large:
                if psutil.virtual_memory().available > _LARGE_CASE_BYTES:
                    self.cases, self.failed_case = [*self.cases, case], case
                    self._try(case)
            self.failed_case = None
            self.remarks.append(Remark(RemarkKind.CHECKS, _CAPPED))

    def _suits(self, reference: Reference, cases: Sequence[Case]) -> bool:
        """Tries cases at other sizes. Returns False, and restores the timed sizes, if the candidate refuses these, too.

        Also returns False if there are no cases.
        """
        before = self.reference, self.cases, self.failed_case
        self._compare_with(reference, cases)
        try:
            self._try_each()
        except Refused:
            cases = []
        if not cases:
            self._compare_with(*before[:2])
            self.failed_case = before[2]
        return bool(cases)

    def _compare_with(self, reference: Reference, cases: Sequence[Case]) -> None:
        self.reference, self.cases = reference, cases
        self._right = self.running.right = reference

    def refuses_by_a_statement(self, refusal: str) -> bool:
        """Returns whether a refusal comes from a statement of the candidate's file that raises an exception."""
        place = re.match(rf"{re.escape(self.source.file)}:(\d+): ", refusal)
        lines = self.candidate.source.split("\n")[max(0, int(place[1]) - 3) : int(place[1])] if place else []
        return any(map(_RAISES.search, lines))

    def _try_each(self) -> None:
        """Tries each case. Raises Fault if a check fails, and Refused if the candidate refuses the timed sizes."""
        for number, case in enumerate(self.cases, 1):
            self.tell(f"checking case {number} of {len(self.cases)}")
            self.failed_case = case
            self._try(case)
        self.failed_case = None

    def _try(self, case: Case) -> None:
        """Calls the candidate in a case, unless that does not suit it. Raises Fault if a check of its answer fails.

        Raises Refused if it refuses the timed sizes.
        """
        try:
            if not self._is_ready_for(case):
                return
            packed = self.reference.inputs(case)
            answer = self.running.call(packed, poison=case.poison)
            checks = self._compared(case, packed, answer)
        except Refused:
            self.refused.append(case.shape_name)
            if case.timed_shape:
                raise
            return
        self.checks += [replace(c, shape=dict(case.shape), distribution=case.distribution) for c in checks]
        failed = next((check for check in checks if not check.passed), None)
        if failed:
            raise Fault(failed.status, f"{failed.case}: {failed.detail}")

    def _is_ready_for(self, case: Case) -> bool:
        """Makes the model for a case. Returns False if the case suits the reference or the candidate's model not."""
        if case.optional and not self.reference.works(case):
            return False
        if not case.optional:
            self.reference.require(case)
        problem = self.reference.at(case)
        if problem is not self._made_for and self.reference.problem.has_large_weights:
            self._draw_next(case)
        return self.ready(problem)

    def _draw_next(self, case: Case) -> None:
        """Begins to draw the weights for the next case that has others than `case`, while the worker draws those."""
        here = self.reference.at(case)
        later = map(self.reference.at, self.cases[self.cases.index(case) :])
        if problem := next((each for each in later if each is not here), None):
            problem.draw_ahead()

    def _compared(self, case: Case, packed: Packed, answer: Answer) -> list[Check]:
        """Returns the check of the first answer in a case, and in a repeated case that of a second call."""
        client, reference = self.running, self.reference
        self.first_call_ms = self.first_call_ms or answer.timed.bracket_ms
        self.launches = answer.launches
        client.release_large()  # the right answer may need the memory
        # The error is measured in the first case and in the repeated one.
        if self.checks and not case.repeat and not reference.is_short(reference.at(case)):
            equal = compare_bits(answer, reference.answer(case), packed.tensors, case.name, self._oracle_missing)
            if equal is not None:
                return [equal]
        structure, expectation = reference.expectation(case)
        self._oracle_missing = expectation.oracle_missing
        if not reference.decides(expectation):
            return []
        check = compare(answer, structure, expectation)
        if check.status is Status.REDUCED_PRECISION:
            check = hypotheses.with_formula(check, answer.outputs, expectation.of_outputs, reference, case)
            check = narrow_formats.advised(check, self.candidate.source)
        if check.status is Status.WRONG_VALUES:
            self.wrong = WrongAnswer(check, answer, expectation)
        if not case.repeat or not check.passed:
            return [check]
        tolerance, changed = expectation.tolerance, expectation.changed
        first = with_changed_inputs(answer, changed, packed.tensors)
        del expectation  # the call may need the memory of a large right answer
        reference.make_room()
        # A candidate may have kept the address of its first inputs, for example in a CUDA graph.
        again = client.call(moved(packed, 3 * tensors.GUARD_BYTES))
        client.release_large()  # the outputs may be on the host until here
        second = with_changed_inputs(again, changed, packed.tensors)
        if [o.shape for o in first] == [o.shape for o in second]:  # outputs of another size may not fit into the memory
            first, second = (tuple(o.to(reference.device) for o in each) for each in (first, second))
        compared = same(first, second, tolerance, f"{case.name} repeated", changed)
        if compared.passed and (mutation := forbidden_write(again.written, changed)):
            compared = replace(compared, status=Status.MUTATED_INPUT, detail=mutation)
        return [check, replace(compared, unchecked=check.unchecked)]

    def _out_of_memory(self, error: torch.OutOfMemoryError) -> Fault:
        """Decides whose fault it is that the device had too little memory for the right answer, and returns the Fault.

        Ends the candidate's process and computes the answer again. If that succeeds, and the process held much more
        memory than a call of the reference needs, the candidate is at fault. Otherwise torch.OutOfMemoryError is
        raised.
        """
        case = self.failed_case
        assert case is not None
        held = _freed_by(self.close, self.reference.device)
        self.reference.expectation(case)
        if held is not None and held <= _MOST_HELD * self.reference.call_bytes(case) + _CONTEXT_BYTES:
            raise error
        reason = f"The kernel leaves too little of the device's memory to compute the answer: {_first_line(error)}"
        return Fault(Status.RUNTIME_ERROR, reason, lacked_memory=True)


def _freed_by(close: Callable[[], None], device: str) -> int | None:
    """Calls `close`, which ends a worker process. Returns by how many bytes the free memory of the GPU `device` grew.

    Returns None if `device` is the CPU.
    """
    if device == "cpu":
        close()
        return None
    torch.cuda.empty_cache()
    before, _ = torch.cuda.mem_get_info(device)
    close()
    after, _ = torch.cuda.mem_get_info(device)
    return int(after - before)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:400]
