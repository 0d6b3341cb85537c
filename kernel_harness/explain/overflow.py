"""Finds out whether a candidate overflows for large inputs, for which the reference stays finite.

A softmax without its maximum, a softplus or a tanh by exp() is right for small numbers only. What counts as large is
the problem's choice, which its STRESS can state, so a problem that says nothing gets a remark and no verdict.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import torch

from kernel_harness.checking import operators
from kernel_harness.checking.elementwise import all_finite
from kernel_harness.core.phases import phase
from kernel_harness.core.remark import Remark, RemarkKind
from kernel_harness.ipc.packed import Packed
from kernel_harness.problem.lookalikes import is_measured
from kernel_harness.trial.trial import Trial
from kernel_harness.workers.faults import Fault, Refused

# exp(x) is infinite in float32 from 89 on. A tanh by exp(2 * x) is from 45 on.
_LARGEST = 150.0
# A call that took longer is not made again.
_LONGEST_CALL_MS = 3e3
_ADVICE = (
    "subtract the largest number before exp(), as softmax and logsumexp do; other functions have a form for large "
    "numbers, such as x for softplus(x)"
)
_LOG = logging.getLogger(__name__)


@phase("explanations")
def on_failed(trial: Trial) -> list[Remark]:
    """Returns a remark on a candidate that failed by an overflow: the output is not finite for large inputs only.

    That is so if it passed at the same shape with smaller inputs, if the reference is finite, and if the reference
    calls a function that can overflow.
    """
    wrong, case, reference = trial.wrong, trial.failed_case, trial.reference
    if wrong is None or case is None or all(map(all_finite, wrong.answer.outputs)):
        return []
    if not all(map(all_finite, wrong.expectation.expected)):
        return []
    passed = [check.distribution for check in trial.checks if check.passed and dict(check.shape) == dict(case.shape)]
    smaller = [c for c in trial.cases if c.shape == case.shape and c.distribution in passed]
    if not smaller or not reference.calls(reference.at(case), reference.inputs(case), operators.EXPONENTIALS):
        return []
    here, before = _largest(reference.inputs(case)), max(_largest(reference.inputs(c)) for c in smaller)
    if here <= before:
        return []
    text = f"It overflows: inputs of up to {here:.4g} give NaN or infinity, and those of up to {before:.4g} do not."
    return [Remark(RemarkKind.MISTAKE, text, advice=_ADVICE)]


def _largest(packed: Packed) -> float:
    return max((float(t.abs().amax()) for t in packed.tensors if t.is_floating_point() and t.numel()), default=0.0)


@phase("explanations")
def on_passed(trial: Trial) -> list[Remark]:
    """Calls a candidate that passed once more, with inputs of up to _LARGEST. Returns a remark if its output overflows.

    The candidate's model is that of the last check. Returns nothing if the reference calls no function that can
    overflow, if it is not finite itself, if no input holds measured numbers, or if the candidate fails otherwise.
    """
    reference = trial.reference
    case = next((case for case in trial.cases if case.timed_shape and not case.random_parameters), None)
    if case is None or (trial.first_call_ms or 0) > _LONGEST_CALL_MS:
        return []
    try:
        problem, packed = reference.at(case), reference.inputs(case)
        if not reference.calls(problem, packed, operators.EXPONENTIALS):
            return []
        large = _enlarged(packed)
        if large is None or not reference.answers_large(problem, large):
            return []
        trial.ready(problem)
        outputs = trial.running.call(large).outputs
        trial.running.release_large()
    except (Fault, Refused, torch.OutOfMemoryError, RuntimeError, ValueError) as error:  # the verdict stands
        _LOG.info("%s: large inputs were not tried: %s", trial.name, error)
        return []
    finally:
        trial.pause()
    count = sum(int((~o.isfinite()).sum()) for o in outputs if o.is_floating_point())
    if not count:
        return []
    text = (
        f"with inputs of up to {_LARGEST:g}, {count} of {sum(o.numel() for o in outputs)} elements overflow to NaN or "
        "infinity, where the reference is finite. The problem does not say that its inputs may be so large, so this "
        "is no failure."
    )
    return [Remark(RemarkKind.CHECKS, text, advice=_ADVICE)]


def _enlarged(packed: Packed) -> Packed | None:
    """Returns the inputs with each tensor of measured numbers scaled to a largest magnitude of _LARGEST.

    Returns None if there is no such tensor, or if one is not contiguous.
    """
    found = [is_measured(t) and bool(t.abs().amax() > 0) for t in packed.tensors]
    if not any(found) or not all(t.is_contiguous() for t in packed.tensors):
        return None
    pairs = zip(packed.tensors, found, strict=True)
    return replace(packed, tensors=tuple(t * (_LARGEST / t.abs().amax()) if enlarge else t for t, enlarge in pairs))
