"""Decides whether the outputs of a candidate are right, which precision they show, and how they are wrong.

The functions have no side effects and work on tensors of any device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch

from kernel_harness.checking.coarseness import HALVES
from kernel_harness.checking.compared import NEARNESS, Compared, Expectation
from kernel_harness.checking.elementwise import Limit, all_finite, count, exceeds, non_finite_mismatch
from kernel_harness.checking.limits import Limits, beyond, is_tail, repeat_limits, scaled_limit, usual_limits
from kernel_harness.checking.patterns import Pattern, describe
from kernel_harness.checking.wrong_elements import ErrorMap, Mismatch, Wrong, error_map, first_mismatches
from kernel_harness.core.precision import Precision, Tolerance
from kernel_harness.core.status import Status
from kernel_harness.ipc.input_memory import unequal

WRONG_NORM = 1e-2
"""An output is wrong if its relative error, in the Frobenius norm, is at least this: no number format explains it."""

LEAST_BITS = 3.0
"""The significant bits of the coarsest format that is named: float8_e5m2. An int8 product shows 5 to 7."""

_OF_FAST_ALGORITHMS = (
    "the errors are small beside the norm of the output, but not beside the elements. Fast algorithms such as "
    "Strassen's err like this, and formats with few exponents. This problem limits the error of each element "
    "(error_scale)"
)

_KEPT = "An output is overwritten after its call: a kernel must not count on what it has left in its output."


@dataclass(frozen=True)
class Check:
    """The verdict on one case.

    `max_abs_error` and `relative_error` (in the Frobenius norm) are the largest of all outputs; None if not measured.
    They are measured against the oracle (the reference's outputs in float64), or against the reference if there is no
    oracle. `detail` describes the failure, and `advice` suggests what to look for in the kernel. `precision` is the
    coarsest number format that the outputs show; None if it was not measured, because of too few output elements, a
    missing oracle, or wrong values. Inputs without zero mean can show only a format coarser than the output's own.
    `first_mismatches` and `error_map` show the wrong elements of one output; they are empty and None if no element is
    known to be wrong. `shape` (the values of the size constants) and `distribution` are those of the case. `unchecked`
    is the check that was skipped and the reason; empty if no check was skipped.
    """

    case: str
    status: Status
    max_abs_error: float | None = None
    relative_error: float | None = None
    first_mismatches: tuple[Mismatch, ...] = ()
    detail: str = ""
    precision: Precision | None = None
    advice: str = ""
    error_map: ErrorMap | None = None
    shape: Mapping[str, int] = field(default_factory=dict)
    distribution: str = ""
    unchecked: str = ""

    @property
    def passed(self) -> bool:
        """Whether the status is PASSED."""
        return self.status is Status.PASSED


def verify(outputs: Sequence[torch.Tensor], expectation: Expectation) -> Check:
    """Applies the checks in `_STEPS`, in order, to the outputs of one case. Returns the verdict as a Check.

    The first check that fails gives the status, and later checks are not made. The status is PASSED if no check fails.
    """
    compared = Compared(tuple(outputs), expectation)
    check = _described(compared, _first_failure(compared) or Check(expectation.case, Status.PASSED))
    if check.status in (Status.WRONG_SHAPE, Status.WRONG_DTYPE):
        return check
    return replace(
        check, max_abs_error=compared.max_abs, relative_error=compared.relative, unchecked=compared.unchecked,
        precision=None if check.status is Status.WRONG_VALUES else compared.precision,
    )  # fmt: skip


def status(outputs: Sequence[torch.Tensor], expectation: Expectation) -> Status:
    """Returns the status that `verify` gives, without its description of wrong elements, which takes longer."""
    failure = _first_failure(Compared(tuple(outputs), expectation))
    return failure.status if failure else Status.PASSED


def _first_failure(compared: Compared) -> _Failure | None:
    return next((f for f in (step(compared) for step in _STEPS) if f is not None), None)


def same(
    first: Sequence[torch.Tensor], second: Sequence[torch.Tensor], tolerance: Tolerance, case: str,
    changed: tuple[int, ...] = (),
) -> Check:  # fmt: skip
    """Compares the outputs of two calls with equal inputs. Returns a Check: PASSED or NONDETERMINISTIC.

    The last of both may be inputs that the calls have changed; `changed` has the indices of these inputs.

    An honest kernel may add numbers in another order in each call, so the last bits may differ. Near zero such a
    difference exceeds any relative tolerance. The tolerance is therefore increased by a share of the output's RMS.
    Shapes and dtypes must be equal, and NaN, +Inf and -Inf must be in the same elements. `case` is the text for the
    case in messages.
    """
    compared = Compared(
        tuple(second), Expectation(case, "repeat", tuple(first), None, None, tolerance, changed=changed)
    )
    failure = _structure(compared) or _finite_mask(compared, repeat_limits) or _elements(compared, repeat_limits)
    if failure is None:
        return Check(case, Status.PASSED, compared.max_abs, compared.relative)
    check = _described(compared, failure)
    detail = f"The second call with the same input gave a different answer. {check.detail} {_KEPT}"
    return replace(check, status=Status.NONDETERMINISTIC, detail=detail, advice="")


def unchanged(before: torch.Tensor | bytes, after: torch.Tensor | bytes) -> bool:
    """Returns whether two values are equal in all bytes, NaN payloads and signs of zeros included.

    Tensors must also have equal shapes and dtypes.
    """
    if isinstance(before, bytes) or isinstance(after, bytes):
        return before == after
    if before.shape != after.shape or before.dtype != after.dtype:
        return False
    there, moved = (after, before) if after.is_cuda else (before, after)  # on a GPU if one of the two is there
    return not unequal(there, moved).item()


@dataclass(frozen=True)
class _WrongValues:
    """The failure of one of the checks that `verify` makes if elements of output `i` are wrong: those in `mask`.

    `_described` turns it into a Check. Any other failure is a Check at once.
    """

    i: int
    mask: torch.Tensor
    status: ClassVar[Status] = Status.WRONG_VALUES


_Failure = Check | _WrongValues


def _structure(compared: Compared) -> _Failure | None:
    """Checks that the outputs have the number, the shapes and the dtypes of the reference's outputs."""
    outputs, expected, after = compared.outputs, compared.expectation.expected, len(compared.expectation.changed)
    if len(outputs) != len(expected):
        text = f"Got {len(outputs) - after} outputs, expected {len(expected) - after}."
        return Check(compared.expectation.case, Status.WRONG_SHAPE, detail=text)
    for i, (got, want) in enumerate(zip(outputs, expected, strict=True)):
        if got.shape != want.shape:
            text = f"{_name(compared, i)} has shape {tuple(got.shape)}, expected {tuple(want.shape)}."
            return Check(compared.expectation.case, Status.WRONG_SHAPE, detail=text)
    for i, (got, want) in enumerate(zip(outputs, expected, strict=True)):
        if got.dtype != want.dtype:
            text = f"{_name(compared, i)} is {got.dtype}, expected {want.dtype}."
            return Check(compared.expectation.case, Status.WRONG_DTYPE, detail=text)
    return None


def _finite_mask(compared: Compared, limits: Limits = usual_limits) -> _Failure | None:
    """Checks that NaN, +Inf and -Inf are in exactly the same elements as in the reference.

    If not, the failure describes all wrong elements, also those that are finite and exceed the limits (`_elements`).
    """
    for i, (got, want) in enumerate(zip(compared.outputs, compared.expectation.expected, strict=True)):
        if compared.is_inexact(i) and not compared.errors[i].finite:
            wrong = non_finite_mismatch(got, want)
            if wrong.any():
                return _WrongValues(i, wrong | beyond(compared, i, limits))
    return None


def _coarseness(compared: Compared) -> _Failure | None:
    """Checks that no output was computed in a format that is coarser than the allowed one (`Compared.coarse`).

    The status is REDUCED_PRECISION if factors of the `Coarse.bits` that were found explain the error of every element,
    and if these are at least LEAST_BITS or the error is below WRONG_NORM. Otherwise it is WRONG_VALUES.
    """
    for i in filter(compared.is_inexact, range(len(compared.outputs))):
        allowed = compared.allowed(i)
        coarse = compared.coarse(i, allowed)
        if coarse is None:
            continue
        wrong = exceeds(*compared.pair(i), scaled_limit(compared, i, 2.0 ** (1 - max(coarse.bits, LEAST_BITS))))
        if wrong.any() or (coarse.bits < LEAST_BITS and coarse.error >= WRONG_NORM):
            return _WrongValues(i, wrong)
        before = " before its last rounding" if compared.outputs[i].dtype in HALVES else ""
        text = (
            f"{_name(compared, i)} has a relative error of {coarse.error:.2g} against float64{before}; that of the "
            f"reference is {coarse.reference:.2g}. Factors of {coarse.bits:.1f} significant bits cause an error of "
            f"this size (so do sums in a half type); {allowed} has {1 - round(math.log2(allowed.epsilon))}."
        )
        advice = f"keep factors in {allowed} and sums in float32, and round each output once"
        return Check(compared.expectation.case, Status.REDUCED_PRECISION, detail=text, advice=advice)
    return None


def _precision(compared: Compared) -> _Failure | None:
    """Checks, for inputs with zero mean, that an allowed number format explains the Frobenius norm of each error.

    An output fails only if its norm is too large for the allowed formats. The status is REDUCED_PRECISION if a coarser
    format explains both the norm and the error of every element (`scaled_limit`), because rounding errors are spread
    over all elements. Otherwise the status is WRONG_VALUES.
    """
    for i in filter(compared.shows_precision, range(len(compared.outputs))):
        shown, errors = compared.shown(i), compared.errors[i]
        if shown is not None and shown.epsilon <= compared.allowed(i).epsilon:
            continue
        wrong = exceeds(*compared.pair(i), scaled_limit(compared, i, (shown or compared.allowed(i)).epsilon))
        if shown is None or wrong.any():
            return _WrongValues(i, wrong)
        also = " (so do sums that are kept in float16)" if shown is Precision.BFLOAT16 else ""
        text = (
            f"{_name(compared, i)} has a relative error of {errors.relative:.2g} against float64, which is the size "
            f"that {shown} causes{also}; the error of the {compared.native(i)} reference is "
            f"{errors.reference_relative:.2g}."
        )
        return Check(compared.expectation.case, Status.REDUCED_PRECISION, detail=text)
    return None


def _elements(compared: Compared, limits: Limits = usual_limits) -> _Failure | None:
    """Checks every element of every output. Returns the failure of the first output with a wrong element, or None.

    An element is wrong if its error exceeds every limit that `limits` yields for its output. The wrong elements of an
    output are all ignored if the reference has errors like theirs (`is_tail`).
    """
    for i in range(len(compared.outputs)):
        wrong = beyond(compared, i, limits)
        if wrong.any() and not is_tail(compared, i, limits, wrong):
            return _WrongValues(i, wrong)
    return None


def _input_rounding(compared: Compared) -> _Failure | None:
    """Checks, for inputs without zero mean, that no error shows inputs rounded to a format that is not allowed."""
    for i, trace in enumerate(compared.traces):
        if trace is not None and trace.rounding.precision.epsilon > compared.allowed(i).epsilon:
            errors = compared.errors[i]
            text = (
                f"{_name(compared, i)} has the errors that inputs rounded to {trace.rounding.precision} cause "
                f"(correlation {trace.correlation:.2f}); the relative error against float64 is {errors.relative:.2g}, "
                f"that of the {compared.native(i)} reference is {errors.reference_relative:.2g}."
            )
            return Check(compared.expectation.case, Status.REDUCED_PRECISION, detail=text)
    return None


def _error_norm(compared: Compared) -> _Failure | None:
    """Checks that the RMS of no output's error is that of a wrong answer, even if each element is within its limit.

    The limit is a share of the right answer's RMS, or NEARNESS times the RMS of the reference's error if that is
    larger. The share is WRONG_NORM, or the epsilon of the dtype if that is larger. A tolerance that the problem file
    states allows at least as much as it allows an element as large as the RMS. An output that is all zeros, or may be
    all rounding error (`is_noise`), is not checked.
    """
    tolerance = compared.expectation.tolerance
    for i in filter(compared.is_inexact, range(len(compared.outputs))):
        errors = compared.errors[i]
        share = max(WRONG_NORM, torch.finfo(compared.outputs[i].dtype).eps)
        allowed = max(share * errors.rms, NEARNESS * errors.reference_error_rms)
        if not tolerance.follows_scale:
            allowed = max(allowed, tolerance.atol + tolerance.rtol * errors.rms)
        if errors.rms > 0 and errors.error_rms > allowed and not compared.is_noise(i):
            return _WrongValues(i, exceeds(*compared.pair(i), Limit(compared.truths[i], share, share * errors.rms)))
    return None


_STEPS: tuple[Callable[[Compared], _Failure | None], ...] = (
    _structure, _finite_mask, _coarseness, _precision, _elements, _error_norm, _input_rounding,
)  # fmt: skip


def _described(compared: Compared, failure: _Failure) -> Check:
    """Returns a Check with a text that describes the mask of wrong elements.

    If the mask is True nowhere, the text has the relative error of the output. Otherwise it has the number of wrong
    elements, the first of them and their pattern, and the Check also has the error map. A Check is returned as it is.
    """
    if isinstance(failure, Check):
        return failure
    i, mask, case = failure.i, failure.mask, compared.expectation.case
    got, want = compared.outputs[i], compared.expectation.expected[i].to(compared.outputs[i].device)
    if got.is_floating_point() and got.element_size() == 1:  # torch implements few operators for float8
        got, want = got.float(), want.float()
    wrong = Wrong(got, want, mask)
    if wrong.count == 0:
        error = f"{compared.errors[i].relative:.2g}"
        text = f"{_name(compared, i)} has a relative error of {error}, spread over all elements."
        return Check(case, Status.WRONG_VALUES, detail=text)
    shown, pattern = first_mismatches(wrong), _input_pattern(compared, i) or describe(wrong)
    odd = 0 if want.is_complex() or all_finite(got) else count(mask & ~got.isfinite())
    some = f" {odd} of the wrong elements are NaN or infinite." if 0 < odd < wrong.count else ""
    text = (
        f"{_name(compared, i)}: {wrong.count} of {mask.numel()} elements wrong, the first at "
        f"{list(shown[0].index)}: got {shown[0].got:.7g}, expected {shown[0].expected:.7g}.{some} {pattern.text}"
    )
    advice = pattern.advice or (_OF_FAST_ALGORITHMS if _is_small_beside_norm(compared, i) else "")
    return Check(
        case, Status.WRONG_VALUES, first_mismatches=shown, detail=text.strip(), advice=advice, error_map=error_map(mask)
    )


def _is_small_beside_norm(compared: Compared, i: int) -> bool:
    """Returns whether elements of output i have a scale, and its error is that of its own format beside its norm."""
    if compared.expectation.scale is None or not compared.is_inexact(i):
        return False
    relative = compared.errors[i].relative
    return relative is not None and relative <= compared.own_error(i)


def _name(compared: Compared, i: int) -> str:
    number, count = _changed_input(compared, i), len(compared.outputs) - len(compared.expectation.changed)
    if number is not None:
        return f"Input {number + 1} after the call"
    return "The output" if count == 1 else f"Output {i + 1} of {count}"


def _changed_input(compared: Compared, i: int) -> int | None:
    """Returns the index of the input that output i is as the call has left it, or None if it is none."""
    changed = compared.expectation.changed
    number = i - len(compared.outputs) + len(changed)
    return changed[number] if number >= 0 else None


def _input_pattern(compared: Compared, i: int) -> Pattern | None:
    """Returns the Pattern of wrong elements of an input that the reference changes, or None for another output."""
    number, inputs = _changed_input(compared, i), compared.expectation.inputs
    if number is None:
        return None
    left = inputs and unchanged(compared.outputs[i], inputs[number])
    text = f"The reference changes this input in place{', and the call left it as it was' if left else ''}."
    return Pattern(text, "write to the input what the reference writes there: its caller may read it")
