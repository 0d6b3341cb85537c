"""Builds and checks one candidate in a worker process. Every fault of the candidate becomes a CheckOutcome."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import torch

from cuda_on_cpu.core.tell import Tell
from kernel_harness.checking import hypotheses, narrow_formats, replay
from kernel_harness.checking.cases import Case, Reference
from kernel_harness.checking.compared import Expectation
from kernel_harness.checking.patterns import Pattern
from kernel_harness.checking.verify import Check, same, verify
from kernel_harness.compile import cu_file
from kernel_harness.core.phases import phase
from kernel_harness.core.status import Status
from kernel_harness.ipc import tensors
from kernel_harness.ipc.input_memory import Written
from kernel_harness.ipc.packed import Packed, moved
from kernel_harness.problem.candidate import Candidate, file_name
from kernel_harness.problem.problem import Problem
from kernel_harness.sandbox.builder import FailedBuilds
from kernel_harness.sandbox.faults import Fault, Refused
from kernel_harness.sandbox.subject import Answer, Subject

# The characters of an output's structure that a message shows. A candidate may return many values or a long text.
_LONGEST_OUTLINE = 500
_RANDOM_PARAMETERS = (
    "The parameters of the model are random in this case. With those that the constructor sets, the output was right. "
    "Check that the kernel reads every parameter in every call."
)
_CU_PARAMETERS = "The forward of a .cu file gets the parameters if it names all of them after its inputs."
# The most cases in which a candidate with wrong values is called again to find its mistake.
_MOST_FURTHER_CASES = 4
# An honest process holds its CUDA context, at most 4 GiB of memory that is shared with the judge, and what its model
# keeps between calls.
_CONTEXT_BYTES = 6 << 30
_MOST_HELD = 2  # in what a call of the reference takes

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class BuildFacts:
    """Facts about the build of one candidate.

    `queue_s` is the time that the candidate waited before its build, `build_s` the time that the build took, both in
    seconds. `builds` has for each library that the candidate built: its name, the seconds it took, and whether it was
    cached.
    """

    queue_s: float = 0.0
    build_s: float = 0.0
    builds: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class CheckOutcome:
    """The outcome of building and checking one candidate.

    `reason` explains the status, and `log` is a compiler's log or a traceback. `checks` holds the verdict on each case
    that gave an output, and for a repeated case also the verdict on the second call. `refused` holds the shapes (values
    of the size constants, as text) that the candidate refused. `failed_case` is the case in which the candidate failed;
    None if it passed or failed outside the cases. `check_s` is the time that the checks took, in seconds.
    `first_call_ms` is the judge's time of the first call; None if no call returned. `launches` is the number of the
    candidate's own kernels in one call, as the worker process reports it; None if unknown. `own_share` is the share of
    the work that these kernels do, from 0 to 1; None if unknown. `remark` is the finding of the sanitizer, a tool that
    looks for memory errors; it may be empty. `lacked_memory` is that of the Fault with which the candidate failed.
    Raises ValueError for the status PASSED together with a failed case.
    """

    status: Status
    reason: str = ""
    log: str = ""
    checks: tuple[Check, ...] = ()
    refused: tuple[str, ...] = ()
    failed_case: Case | None = None
    build: BuildFacts = field(default_factory=BuildFacts)
    check_s: float = 0.0
    first_call_ms: float | None = None
    launches: int | None = None
    own_share: float | None = None
    remark: str = ""
    lacked_memory: bool = False

    def __post_init__(self) -> None:
        if self.status is Status.PASSED and self.failed_case is not None:
            raise ValueError(f"a CheckOutcome has the status PASSED and the failed case {self.failed_case.name}")

    @property
    def passed(self) -> bool:
        """Returns whether the status is PASSED."""
        return self.status is Status.PASSED


class Examination:
    """The build and the checks of one candidate.

    `subject` is the handle of the candidate's worker process. Before `build` has started this process, `subject` is
    None. The creator of an Examination must close `subject`.
    """

    def __init__(
        self, candidate: Candidate, start: Callable[[], Subject], reference: Reference, cases: Sequence[Case]
    ) -> None:
        self.candidate = candidate
        self.subject: Subject | None = None
        self._start, self._reference, self._cases = start, reference, cases
        self._queued, self._queue_s, self._build_s = time.perf_counter(), 0.0, 0.0
        self._failed_builds: FailedBuilds = {}
        self._case: Case | None = None
        self._checks: list[Check] = []
        self._refused: list[str] = []
        self._first_call_ms: float | None = None
        self._launches: int | None = None

    def build(self, *, with_constructor: bool = False) -> None:
        """Starts a worker process and executes the kernel file there, which builds its extensions.

        If `with_constructor`, extensions that the model's constructor builds are built, too (`_build_in_constructor`),
        but only if the file contains the name of a function that builds, such as `load_inline`, and its execution built
        nothing. Any thread may call this method. Raises Fault if the candidate cannot be built or loaded.
        """
        began = time.perf_counter()
        self._queue_s = began - self._queued
        try:
            self.subject = self._started()
            self._load(self.subject)
            if with_constructor and self.candidate.names_a_build and not self.subject.builds:
                self.subject.worker.pause()
                self._build_in_constructor()
        finally:
            self._build_s = time.perf_counter() - began

    def _build_in_constructor(self) -> None:
        """Builds the model in a further worker process, which is then ended.

        Only what it builds is kept: libraries in the build cache, and failures in `_failed_builds`. Anything else that
        happens there, for example for lack of memory beside other candidates, is not part of the verdict.
        """
        try:
            with closing(self._started()) as subject:
                self._load(subject)
                subject.make(self._reference.problem)
        except Exception as error:  # a fault, or a problem that cannot be used: the checks find it again
            _LOG.info("%s: the constructor failed ahead: %s: %s", self.candidate.name, type(error).__name__, error)

    def _started(self) -> Subject:
        subject = self._start()
        subject.failed_builds = self._failed_builds
        return subject

    def _load(self, subject: Subject) -> None:
        subject.load(file_name(self.candidate), self.candidate.source, "ModelNew")

    @phase("checks")
    def check(self, built: Callable[[], None], tell: Tell, *, ready_for_timing: bool = True) -> CheckOutcome:
        """Checks the candidate on every case until a case fails, and returns the outcome.

        `built` waits until `build` has ended, and raises the exception that `build` raised, like the method `result` of
        a Future. `tell` gets a text before each case. If `ready_for_timing` is True, the model of a candidate that
        passed is built again for the sizes at which it will be timed.
        Raises torch.OutOfMemoryError if the device has too little memory for the right answer and the candidate is not
        at fault (`_out_of_memory`), and UserError if the reference itself cannot run.
        """
        fault: Fault | None = None
        began = time.perf_counter()
        try:
            built()
            began = time.perf_counter()
            assert self.subject is not None
            self._try_cases(self.subject, tell)
            if ready_for_timing:
                self._make(self.subject, self._reference.problem)
        except Fault as raised:
            # The frames in the traceback of `raised` hold the inputs, until Python looks for cycles.
            fault = Fault(raised.status, raised.reason, raised.log, lacked_memory=raised.lacked_memory)
        except torch.OutOfMemoryError as error:
            fault = self._out_of_memory(error)
        return self._outcome(fault, time.perf_counter() - began)

    def _outcome(self, fault: Fault | None, check_s: float) -> CheckOutcome:
        reason = fault.reason if fault else ""
        if self._case and self._case.name not in reason:
            reason += f"\nThe failure was at the case {self._case.name}."
        return CheckOutcome(
            status=fault.status if fault else Status.PASSED,
            reason=reason,
            log=fault.log if fault else "",
            lacked_memory=fault is not None and fault.lacked_memory,
            checks=tuple(self._checks),
            refused=tuple(self._refused),
            failed_case=self._case,
            build=BuildFacts(self._queue_s, self._build_s, tuple(self.subject.builds if self.subject else ())),
            check_s=check_s,
            first_call_ms=self._first_call_ms,
            launches=self._launches,
        )

    def _try_cases(self, subject: Subject, tell: Tell) -> None:
        made: Problem | None = None
        for number, case in enumerate(self._cases, 1):
            tell(f"checking case {number} of {len(self._cases)}")
            self._case = case
            if case.optional and not self._reference.works(case):
                continue
            if not case.optional:
                self._reference.require(case)
            problem = self._reference.at(case)
            if problem is not made:
                made = problem
                if not self._make(subject, problem):
                    continue
            try:
                checks = self._try(subject, case)
                subject.release_large()
            except Refused as refusal:
                if case.timed_shape:
                    raise Fault(Status.RUNTIME_ERROR, str(refusal), refusal.log) from None
                self._refused.append(case.shape_name)
                continue
            checks = [narrow_formats.advised(check, self.candidate.source) for check in checks]
            self._checks += [replace(c, shape=dict(case.shape), distribution=case.distribution) for c in checks]
            failed = next((check for check in checks if not check.passed), None)
            if failed:
                advice = [
                    _parameter_advice(self.candidate, case, problem, failed.status),
                    _layout_advice(self._reference.inputs(case), failed.status),
                ]
                raise Fault(failed.status, "\n".join(filter(None, [f"{failed.case}: {failed.detail}", *advice])))
        self._case = None
        if not self._checks and not self._refused:
            raise Fault(
                Status.UNSUPPORTED,
                "No case could be checked: none suits both the reference and the candidate. Choose another --case.",
            )

    @phase("models")
    def _make(self, subject: Subject, problem: Problem) -> bool:
        subject.renews_model = self._reference.keeps_state
        subject.outputs.right_bytes = self._reference.output_bytes(problem)
        subject.outputs.kept = self._reference.kept_outputs(problem)
        return subject.make(problem)

    def _try(self, subject: Subject, case: Case) -> list[Check]:
        packed = self._reference.inputs(case)
        subject.outputs.kept = self._reference.kept_outputs(self._reference.at(case))
        answer = subject.call(packed, poison=case.poison)
        self._first_call_ms = self._first_call_ms or answer.timed.bracket_ms
        self._launches = answer.launches
        subject.release_large()  # the right answer may need the memory
        structure, expectation = self._reference.expectation(case)
        if not self._reference.decides(expectation):
            return []
        check = compare(answer, structure, expectation)
        if check.status in (Status.WRONG_VALUES, Status.REDUCED_PRECISION):
            check = self._explained(subject, case, check, answer.outputs, expectation.of_outputs)
        if not case.repeat or not check.passed:
            return [check]
        tolerance, changed = expectation.tolerance, expectation.changed
        first = with_changed_inputs(answer, changed, packed.tensors)
        del expectation  # the call may need the memory of a large right answer
        self._reference.make_room()
        # A candidate may have kept the address of its first inputs, for example in a CUDA graph.
        subject.outputs.kept = self._reference.kept_outputs(self._reference.at(case))
        again = subject.call(moved(packed, 3 * tensors.CANARY_BYTES))
        subject.release_large()  # the outputs may be on the host until here
        second = with_changed_inputs(again, changed, packed.tensors)
        if [o.shape for o in first] == [o.shape for o in second]:  # outputs of another size may not fit into the memory
            first, second = (tuple(o.to(self._reference.device) for o in each) for each in (first, second))
        compared = same(first, second, tolerance, f"{case.name} repeated", changed)
        if compared.passed and (mutation := forbidden_write(again.written, changed)):
            compared = replace(compared, status=Status.MUTATED_INPUT, detail=mutation)
        return [check, replace(compared, unchecked=check.unchecked)]

    @phase("explanations")
    def _explained(
        self, subject: Subject, case: Case, check: Check, outputs: Sequence[torch.Tensor], expectation: Expectation
    ) -> Check:
        """Returns the failed check with the mistake that gives the outputs, or unchanged if no mistake is recognised.

        If wrong values in this case show too little (`shows_little`) and there is no other advice, the candidate is
        called in up to _MOST_FURTHER_CASES of the cases that follow, at other shapes, until the search has computed for
        replay.LONGEST_S seconds.
        """
        try:
            coarse = check.status is Status.REDUCED_PRECISION
            pattern = hypotheses.find(outputs, expectation, self._reference, case, only_formulas=coarse)
            if pattern or coarse or check.advice or not hypotheses.shows_little(outputs, self._reference, case):
                return hypotheses.explained(check, pattern)
            later = self._cases[self._cases.index(case) + 1 :]
            others = (c for c in later if c.shape != case.shape and not c.optional)
            began = time.thread_time()
            for other in islice(others, _MOST_FURTHER_CASES):
                if time.thread_time() - began > replay.LONGEST_S:
                    break
                self._make(subject, self._reference.at(other))
                pattern = self._mistake(subject, other)
                if pattern:
                    return hypotheses.explained(check, pattern, other)
        except Exception as error:  # a slow reference, a further fault of the candidate: the verdict stands
            _LOG.info("%s: no mistake was found: %s: %s", case.name, type(error).__name__, error)
        return check

    def _mistake(self, subject: Subject, case: Case) -> Pattern | None:
        """Calls the candidate in a case, and returns the mistake that gives its wrong values.

        Returns None if the status of the outputs is not WRONG_VALUES, or if no known mistake gives them.
        """
        answer = subject.call(self._reference.inputs(case))
        structure, expectation = self._reference.expectation(case)
        if compare(answer, structure, expectation).status is not Status.WRONG_VALUES:
            return None
        return hypotheses.find(answer.outputs, expectation.of_outputs, self._reference, case)

    def _out_of_memory(self, error: torch.OutOfMemoryError) -> Fault:
        """Decides whose fault it is that the device had too little memory for the right answer, and returns the Fault.

        Ends the candidate's process and computes the answer again. If that succeeds, and the process held much more
        memory than a call of the reference needs, the candidate is at fault. Otherwise torch.OutOfMemoryError is
        raised.
        """
        assert self.subject is not None and self._case is not None
        held = _freed_by(self.subject.close, self._reference.device)
        self._reference.expectation(self._case)
        if held is not None and held <= _MOST_HELD * self._reference.call_bytes(self._case) + _CONTEXT_BYTES:
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


def _parameter_advice(candidate: Candidate, case: Case, problem: Problem, status: Status) -> str:
    """Returns advice on the parameters of the model for a case that failed with `status`, or an empty text."""
    in_cuda = file_name(candidate).endswith(".cu")
    if case.random_parameters:
        return f"{_RANDOM_PARAMETERS} {_CU_PARAMETERS}" if in_cuda else _RANDOM_PARAMETERS
    if in_cuda and status is Status.WRONG_VALUES:
        return cu_file.left_out(candidate.source, len(problem.inputs(case.seed)), problem.state())
    return ""


def _layout_advice(packed: Packed, status: Status) -> str:
    """Returns advice on the first input that is not contiguous, for wrong values; empty if there is none."""
    if status is not Status.WRONG_VALUES:
        return ""
    leaves = enumerate(packed.leaves, 1)
    found = next(((i, leaf) for i, leaf in leaves if not leaf.without_values().is_contiguous()), None)
    if found is None:
        return ""
    return (
        f"Input {found[0]} is not contiguous: its strides are {found[1].stride}. A kernel must use them, or read what "
        "contiguous() returns."
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:400]


@phase("comparisons")
def compare(answer: Answer, structure: Any, expectation: Expectation) -> Check:
    """Compares a candidate's answer with the right answer, and returns the verdict as a Check.

    `structure` is the nesting of the right answer's lists, tuples and dictionaries, with its values that are not
    tensors. The structures are compared first, then the tensors and those inputs that the reference changes, and then
    the other inputs (`forbidden_write`). If the shapes are right, and the outputs were not copied because they are too
    large (`Answer.outputs`), the status is UNSUPPORTED.
    """
    if tensors.skeleton(answer.structure) != tensors.skeleton(structure):
        got = tensors.outline(answer.structure)[:_LONGEST_OUTLINE]
        detail = f"Got the structure {got}, expected {tensors.outline(structure)}."
        return Check(expectation.case, Status.WRONG_SHAPE, detail=detail)
    outputs = with_changed_inputs(answer, expectation.changed, expectation.inputs)
    if [output.shape for output in outputs] != [expected.shape for expected in expectation.expected]:
        return verify(outputs, expectation)  # outputs of any size may not fit into the device's memory
    if any(output.is_meta for output in answer.outputs):
        detail = "The outputs are far larger than in another call of the reference at this size, and were not compared."
        return Check(expectation.case, Status.UNSUPPORTED, detail=detail)
    pairs = zip(outputs, expectation.expected, strict=True)
    check = verify([output.to(expected.device) for output, expected in pairs], expectation)
    mutation = forbidden_write(answer.written, expectation.changed)
    return Check(check.case, Status.MUTATED_INPUT, detail=mutation) if check.passed and mutation else check


def with_changed_inputs(
    answer: Answer, changed: Sequence[int], inputs: Sequence[torch.Tensor]
) -> Sequence[torch.Tensor]:
    """Returns the outputs of an answer, and then the inputs with the indices `changed` as the call has left them.

    `inputs` are all inputs, as they were before the call. Raises torch.OutOfMemoryError if there was too little memory
    for a copy of such an input.
    """
    missing = next((i for i in changed if i in answer.written.inputs and i not in answer.written.after), None)
    if missing is not None:
        raise torch.OutOfMemoryError(f"There is too little memory for a copy of input {missing + 1}.")
    return [*answer.outputs, *(answer.written.after.get(i, inputs[i]) for i in changed)]


def forbidden_write(written: Written, may_change: Collection[int]) -> str:
    """Returns a sentence about a forbidden write of a call; empty if there was none.

    A call must not change an input that the reference does not change, nor the memory just beside an input.
    `may_change` has the indices of the inputs that the reference changes.
    """
    blamed = next((i for i in written.inputs if i not in may_change), None)
    if blamed is not None:
        return f"Input {blamed + 1} was changed by the call."
    return next((f"Memory just beside input {i + 1} was written to." for i in written.beside), "")
