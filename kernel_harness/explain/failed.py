"""Remarks on a candidate that failed: the mistake behind wrong values, advice, and what the sanitizer finds."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import torch

from kernel_harness.checking import hypotheses, replay
from kernel_harness.checking.answers import compare
from kernel_harness.checking.cases import Case
from kernel_harness.checking.compared import Expectation
from kernel_harness.checking.patterns import Pattern
from kernel_harness.compile import cu_file
from kernel_harness.core.phases import phase
from kernel_harness.core.remark import Remark, RemarkKind
from kernel_harness.core.status import Status
from kernel_harness.diagnostics.sanitizer import sanitize
from kernel_harness.explain import across_cases, overflow, registers, unread
from kernel_harness.problem.distributions import NEGATIVE, POSITIVE
from kernel_harness.trial.trial import Trial
from kernel_harness.workers.faults import Fault, Refused
from kernel_harness.workers.fork_server import ForkServer

_RANDOM_PARAMETERS = (
    "The parameters of the model are random in this case. With those that the constructor sets, the output was right. "
    "Check that the kernel reads every parameter in every call."
)
_CU_PARAMETERS = "The forward of a .cu file gets the parameters if it names all of them after its inputs."
_DIFFERING = (
    "Parameters differ from the reference's: no tensor in the model's state dict has the values of {}. Draw them by "
    "the same calls in the same order, for example by the same torch.nn layers."
)
_START = {
    NEGATIVE: Pattern(
        "All numbers of the inputs are below zero in this case. With both signs, the output was right.",
        "start the search for a maximum at the first number or at -INFINITY; FLT_MIN is the least number above zero",
    ),
    POSITIVE: Pattern(
        "All numbers of the inputs are above 1 in this case. With smaller ones, the output was right.",
        "start the search for a minimum at the first number or at INFINITY",
    ),
}
_MOST_NAMES = 5
# The most cases in which a candidate with wrong values is called again to find its mistake.
_MOST_FURTHER_CASES = 4
_LONGEST_WAIT_S = 5.0
_SANITIZED = (Status.WRONG_VALUES, Status.CRASHED, Status.NONDETERMINISTIC, Status.TIMEOUT)
# A kernel that timed out runs again for so long, to see where it is then.
_HUNG_S = 5.0
# In the text of a CUDA error that names no line of the kernel: CUDA's own words, or those of the emulator.
_WITHOUT_LINE = re.compile(r"illegal memory access|waits at a barrier|waits in a warp|mask does not include")

_LOG = logging.getLogger(__name__)


def on_trial(trial: Trial, fork_server: ForkServer, seed: int, *, emulated: bool) -> list[Remark]:
    """Returns the remarks on a candidate that failed, whose worker process may still live.

    On a device that is `emulated`, workers of `fork_server` run the sanitizer. `seed` is that of the run.
    """
    found = list[Remark]()
    for explain in (_on_registers, overflow.on_failed, _on_mistake, _on_parameters, _on_layout):
        try:
            found += explain(trial)
        except torch.OutOfMemoryError as error:  # the verdict stands
            _LOG.info("%s: no remark: %s", trial.name, error)
    case = _failed_check(trial)
    if case is not None and not any(remark.kind is RemarkKind.MISTAKE for remark in found):
        # The advice on a coarse number format is of no use if the error is that of a number left out.
        unexplained = trial.status is Status.WRONG_VALUES and not trial.checks[-1].advice
        if unexplained or trial.status is Status.REDUCED_PRECISION:
            found += unread.remarks(trial, case)
    if emulated:
        found += _on_memory(trial, fork_server, seed)
    return found


@phase("explanations")
def _on_mistake(trial: Trial) -> list[Remark]:
    """Returns a remark on the mistake that gives the wrong values; none if no mistake is recognised.

    Without advice from the failed case, the candidate is called in up to _MOST_FURTHER_CASES of the cases that follow,
    until the search has computed for replay.LONGEST_S seconds, or _LONGEST_WAIT_S have passed. What several cases show
    together counts (`across_cases`), and, if the failed case shows too little (`shows_little`), a mistake in another.
    """
    wrong, case, reference = trial.wrong, trial.failed_case, trial.reference
    if wrong is None or case is None:
        return []
    outputs, expectation = wrong.answer.outputs, wrong.expectation.of_outputs
    try:
        if pattern := hypotheses.find(outputs, expectation, reference, case):
            # With another formula, the verdict itself may say so.
            return [] if pattern.text in wrong.check.detail else [_remark(pattern)]
        if trial.status is Status.WRONG_VALUES and (pattern := _START.get(case.distribution)):
            return [_remark(pattern)]
        if wrong.check.advice:
            return []
        little = hypotheses.shows_little(outputs, reference, case)
        seen = [across_cases.Seen(check.shape, (), True) for check in trial.checks if check.passed]
        seen.append(_seen(trial, case, outputs, expectation, passed=False))
        began, latest = time.thread_time(), time.monotonic() + _LONGEST_WAIT_S
        for other in islice(_further(trial, case), _MOST_FURTHER_CASES):
            if time.thread_time() - began > replay.LONGEST_S or time.monotonic() > latest:
                break
            found, passed = _again(trial, other)
            if little and not passed and (pattern := hypotheses.find(*found, reference, other)):
                text = f"At {other.name}, {pattern.text[0].lower()}{pattern.text[1:]}"
                return [_remark(replace(pattern, text=text))]
            seen.append(_seen(trial, other, *found, passed=passed))
        if pattern := across_cases.factor(seen) or across_cases.partial_tile(seen):
            return [_remark(pattern)]
    except Exception as error:  # a slow reference, a further fault of the candidate: the verdict stands
        _LOG.info("%s: no mistake was found: %s: %s", case.name, type(error).__name__, error)
    return []


def _remark(pattern: Pattern) -> Remark:
    return Remark(RemarkKind.MISTAKE, pattern.text, advice=pattern.advice)


def _further(trial: Trial, case: Case) -> Iterator[Case]:
    """Yields the cases after `case` in which the candidate may be called, first those at other shapes."""
    later = trial.cases[trial.cases.index(case) + 1 :]
    ordered = sorted(later, key=lambda other: (other.shape == case.shape, other.optional))
    return (other for other in ordered if not other.optional or trial.reference.works(other))


def _again(trial: Trial, case: Case) -> tuple[tuple[Sequence[torch.Tensor], Expectation], bool]:
    """Calls the candidate in a case. Returns its outputs with what is expected of them, and whether they are right."""
    trial.make(trial.reference.at(case))
    answer = trial.running.call(trial.reference.inputs(case))
    structure, expectation = trial.reference.expectation(case)
    passed = compare(answer, structure, expectation).passed
    return (answer.outputs, expectation.of_outputs), passed


def _seen(
    trial: Trial, case: Case, outputs: Sequence[torch.Tensor], expectation: Expectation, *, passed: bool
) -> across_cases.Seen:
    counts = [tensor.numel() for tensor in trial.reference.inputs(case).tensors]
    ratio = None if passed else across_cases.ratio(outputs, expectation.expected)
    return across_cases.Seen(dict(case.shape), counts, passed, ratio)


def _on_registers(trial: Trial) -> list[Remark]:
    """Returns a remark on a variable of a kernel without a value, if any, for an output that failed its check."""
    found = registers.remark(trial.candidate.source) if _failed_check(trial) else None
    return [found] if found else []


def _on_parameters(trial: Trial) -> list[Remark]:
    """Returns advice on the parameters of the model, if any, for an output that failed its check."""
    case = _failed_check(trial)
    if case is None:
        return []
    text, in_cuda = "", trial.source.file.endswith(".cu")
    if case.random_parameters:
        text = f"{_RANDOM_PARAMETERS} {_CU_PARAMETERS}" if in_cuda else _RANDOM_PARAMETERS
    elif in_cuda and trial.status is Status.WRONG_VALUES:
        problem = trial.reference.at(case)
        text = cu_file.left_out(trial.candidate.source, len(problem.inputs(case.seed)), problem.state())
    elif trial.status is Status.WRONG_VALUES:
        text = _differing(trial, case)
    return [Remark(RemarkKind.ADVICE, text)] if text else []


def _differing(trial: Trial, case: Case) -> str:
    """Returns advice on parameters that the model draws otherwise than the reference, or an empty text."""
    problem = trial.reference.at(case)
    if not problem.parameters or not trial.is_alive:
        return ""
    try:
        names = trial.running.differing_parameters(problem)
    except (Fault, Refused):  # a further fault of the candidate: the verdict stands
        return ""
    return _DIFFERING.format(", ".join(names[:_MOST_NAMES])) if names else ""


def _on_layout(trial: Trial) -> list[Remark]:
    """Returns advice on the first input that is not contiguous, if any, for wrong values."""
    case = _failed_check(trial)
    if case is None or trial.status is not Status.WRONG_VALUES:
        return []
    packed = trial.reference.inputs(case)
    names = replay.names_of(trial.reference.problem, packed)
    of_leaves = zip(names, packed.leaves, strict=True)
    found = next(((name, leaf) for name, leaf in of_leaves if not leaf.without_values().is_contiguous()), None)
    if found is None:
        return []
    name, leaf = found
    text = (
        f"{name[0].upper()}{name[1:]} is not contiguous: its strides are {leaf.stride}. Check that the kernel uses "
        "them, or reads what contiguous() returns."
    )
    return [Remark(RemarkKind.ADVICE, text)]


def _failed_check(trial: Trial) -> Case | None:
    """Returns the case whose check an output has failed; None if the candidate failed in another way."""
    return trial.failed_case if trial.checks and not trial.checks[-1].passed else None


@phase("sanitizer")
def _on_memory(trial: Trial, fork_server: ForkServer, seed: int) -> list[Remark]:
    """Runs the failed case again under the sanitizer, which names the line of a mistake. Returns its finding, if any.

    Only a compiled kernel is sanitized that failed a case with a status in _SANITIZED, or by an error without a line.
    """
    error = trial.fault.reason if trial.fault is not None and trial.status is Status.RUNTIME_ERROR else ""
    if not (_WITHOUT_LINE.search(error) or trial.status in _SANITIZED) or not trial.failed_case or not trial.builds:
        return []
    case, problem = trial.failed_case, trial.reference.problem
    within_s = _HUNG_S if trial.status is Status.TIMEOUT else sanitize.REMARK_S
    job = sanitize.Job(problem, trial.candidate, [case], within_s=within_s)
    found = sanitize.remark(fork_server, job, seed, trial.tell)
    return [found] if found else []
