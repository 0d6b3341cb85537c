"""From outputs to a Check: is the answer right, to which precision, and if not, how is it wrong.

Pure functions of tensors on any device. Nothing here knows how an output or an expectation came to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from kernel_harness.elementwise import Errors, Limit, beyond, measure, of_another_kind
from kernel_harness.error_map import ErrorMap, error_map
from kernel_harness.patterns import Mismatch, Wrong, describe, first_mismatches
from kernel_harness.precision import EXACT, REDUCED_TOLERANCE, Precision, Tolerance, is_inexact
from kernel_harness.status import Status

MIN_PRECISION_NUMEL = 1024
"""Fewer outputs than this do not average enough rounding errors to tell formats apart."""

ELEMENT_LIMIT = 1e-4


@dataclass(frozen=True)
class Expectation:
    """Everything that is known about the right answer of one case; one tensor per output.

    `distribution` is "own" (the problem's own inputs), "integers" (the exact answer fits the format) or any
    other name. `zero_mean` says that the inputs are: then outputs cancel, the precision shows in their
    relative error, and elements near zero miss a plain allclose. `oracle` is the model in float64, None if
    it cannot run so. `scale` is the magnitude that an element's rounding error is measured against (must
    broadcast to the output), None for the oracle's RMS. `allowed_precision` None allows the output's own.
    Raises ValueError if the parts do not fit each other.
    """

    case: str
    distribution: str
    expected: tuple[torch.Tensor, ...]
    oracle: tuple[torch.Tensor, ...] | None
    scale: tuple[torch.Tensor, ...] | None
    tolerance: Tolerance
    zero_mean: bool = False
    allowed_precision: Precision | None = None

    def __post_init__(self) -> None:
        shapes = [e.shape for e in self.expected]
        if self.oracle is not None and [o.shape for o in self.oracle] != shapes:
            raise ValueError("the oracle's outputs have other shapes than the reference's")
        if self.scale is None:
            return
        if len(self.scale) != len(shapes):
            raise ValueError(f"error_scale gave {len(self.scale)} tensors for {len(shapes)} outputs")
        for scale, shape in zip(self.scale, shapes, strict=True):
            if not _broadcasts(scale.shape, shape):
                raise ValueError(f"error_scale of shape {tuple(scale.shape)} does not fit {tuple(shape)}")


@dataclass(frozen=True)
class Check:
    """The verdict on one case; errors are against the oracle where there is one, else the reference.

    `precision` is None where it was not measured: too few outputs, inputs that are not zero-mean, no oracle,
    or values that are wrong.
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

    @property
    def passed(self) -> bool:
        """Whether nothing was found wrong."""
        return self.status is Status.PASSED


def verify(outputs: Sequence[torch.Tensor], expectation: Expectation) -> Check:
    """Judge the outputs of one case: the first of `_STEPS` that fails gives the status."""
    answer = _Answer(tuple(outputs), expectation)
    failure = next((f for f in (step(answer) for step in _STEPS) if f is not None), _Failure(Status.PASSED))
    if failure.status in (Status.WRONG_SHAPE, Status.WRONG_DTYPE):
        return Check(expectation.case, failure.status, detail=failure.detail)
    return Check(
        expectation.case,
        failure.status,
        answer.max_abs,
        answer.relative,
        failure.mismatches,
        failure.detail,
        None if failure.status is Status.WRONG_VALUES else answer.precision,
        failure.advice,
        failure.error_map,
    )


def same(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor], tolerance: Tolerance, case: str) -> Check:
    """Whether two answers to the same input agree; NONDETERMINISTIC if not.

    An honest sum in an order of its own differs in the last bits, which near zero is more than any relative
    tolerance allows: an element counts as large as the output's RMS. Non-finite elements must be alike.
    """
    answer = _Answer(tuple(second), Expectation(case, "repeat", tuple(first), None, None, tolerance))
    failure = _structure(answer) or _finite_mask(answer) or _elements(answer, _repeat_limits)
    if failure is None:
        return Check(case, Status.PASSED, answer.max_abs, answer.relative)
    detail = f"The same input gave another answer the second time. {failure.detail}"
    return Check(
        case, Status.NONDETERMINISTIC, first_mismatches=failure.mismatches, detail=detail, error_map=failure.error_map
    )


def unchanged(before: torch.Tensor | bytes, after: torch.Tensor | bytes) -> bool:
    """Whether not one byte differs; NaN payloads and the sign of zero count."""
    if isinstance(before, bytes) or isinstance(after, bytes):
        return before == after
    if before.shape != after.shape or before.dtype != after.dtype:
        return False
    return bool(torch.equal(_bytes_of(before), _bytes_of(after).to(before.device)))


@dataclass(frozen=True)
class _Failure:
    status: Status
    detail: str = ""
    mismatches: tuple[Mismatch, ...] = ()
    advice: str = ""
    error_map: ErrorMap | None = None


@dataclass(frozen=True)
class _Answer:
    """Outputs beside their expectation, and what several steps need to know of them, measured once."""

    outputs: tuple[torch.Tensor, ...]
    expectation: Expectation

    @property
    def truths(self) -> tuple[torch.Tensor, ...]:
        return self.expectation.expected if self.expectation.oracle is None else self.expectation.oracle

    @cached_property
    def errors(self) -> tuple[Errors, ...]:
        return tuple(map(measure, self.outputs, self.expectation.expected, self.truths))

    @property
    def max_abs(self) -> float | None:
        return max((e.max_abs for e in self.errors if e.max_abs is not None), default=None)

    @property
    def relative(self) -> float | None:
        return max((e.relative for e in self.errors if e.relative is not None), default=None)

    @property
    def precision(self) -> Precision | None:
        """The coarsest class that any output shows; None if none can show it, or one is off by more."""
        classes = [self.shown(i) for i in range(len(self.outputs)) if self.shows_precision(i)]
        known = [p for p in classes if p is not None]
        return max(known, key=lambda p: p.epsilon) if known and len(known) == len(classes) else None

    def pair(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Output i and the reference's."""
        return self.outputs[i], self.expectation.expected[i]

    def is_inexact(self, i: int) -> bool:
        return is_inexact(self.outputs[i].dtype)

    def native(self, i: int) -> Precision:
        return Precision.of(self.outputs[i].dtype)

    def allowed(self, i: int) -> Precision:
        """The widest class that output i may show, its own format at least."""
        native = self.native(i)
        return max(native, self.expectation.allowed_precision or native, key=lambda p: p.epsilon)

    def applied(self, i: int) -> Precision:
        """The class whose tolerance output i gets: the one it shows, else the widest allowed."""
        shown = self.shown(i) if self.shows_precision(i) else None
        return shown or self.allowed(i)

    def shows_precision(self, i: int) -> bool:
        """Whether enough float outputs of zero-mean inputs are there to measure a class by."""
        if self.expectation.oracle is None or not self.expectation.zero_mean or not self.is_inexact(i):
            return False
        return bool(self.outputs[i].numel() >= MIN_PRECISION_NUMEL and self.errors[i].rms > 0)

    def shown(self, i: int) -> Precision | None:
        """The finest class that explains output i's error; None if it is larger than any format's.

        Its own format may err by 32 times what the reference does, and by `largest_error` in any case.
        """
        errors, native = self.errors[i], self.native(i)
        own = min(native.largest_error, Precision.FLOAT32.largest_error)
        if errors.relative is None or errors.relative <= max(32 * (errors.reference_relative or 0.0), own):
            return native
        coarser = (p for p in Precision if p.epsilon > native.epsilon and errors.relative < p.largest_error)
        return next(coarser, None)


def _structure(answer: _Answer) -> _Failure | None:
    """Step 1: as many outputs as the reference gives, of its shapes and dtypes."""
    outputs, expected = answer.outputs, answer.expectation.expected
    if len(outputs) != len(expected):
        return _Failure(Status.WRONG_SHAPE, f"Got {len(outputs)} outputs, expected {len(expected)}.")
    for i, (got, want) in enumerate(zip(outputs, expected, strict=True)):
        if got.shape != want.shape:
            text = f"{_name(answer, i)} has shape {tuple(got.shape)}, expected {tuple(want.shape)}."
            return _Failure(Status.WRONG_SHAPE, text)
    for i, (got, want) in enumerate(zip(outputs, expected, strict=True)):
        if got.dtype != want.dtype:
            return _Failure(Status.WRONG_DTYPE, f"{_name(answer, i)} is {got.dtype}, expected {want.dtype}.")
    return None


def _finite_mask(answer: _Answer) -> _Failure | None:
    """Step 1, continued: NaN, +Inf and -Inf exactly where the reference has them."""
    for i, (got, want) in enumerate(zip(answer.outputs, answer.expectation.expected, strict=True)):
        if answer.is_inexact(i):
            wrong = of_another_kind(got, want)
            if wrong.any():
                return _explained(answer, i, wrong)
    return None


def _precision(answer: _Answer) -> _Failure | None:
    """Step 2: the Frobenius error of zero-mean outputs is no larger than an allowed format causes.

    An error of a format's size is that format's only if it is spread as rounding is: where single elements
    are off by more than the format explains, the values are wrong.
    """
    for i in filter(answer.shows_precision, range(len(answer.outputs))):
        shown, errors = answer.shown(i), answer.errors[i]
        if shown is not None and shown.epsilon <= answer.allowed(i).epsilon:
            continue
        wrong = beyond(*answer.pair(i), _scaled_limit(answer, i, shown or answer.allowed(i)))
        if shown is None or wrong.any():
            return _explained(answer, i, wrong)
        text = (
            f"{_name(answer, i)} has a relative error of {errors.relative:.2g} against float64, the size "
            f"that {shown} leaves; the {answer.native(i)} reference has {errors.reference_relative:.2g}."
        )
        return _Failure(Status.REDUCED_PRECISION, text)
    return None


def _values(answer: _Answer) -> _Failure | None:
    """Steps 3 and 4: every element within the limit that its distribution sets."""
    return _elements(answer, _own_limits if answer.expectation.distribution == "own" else _other_limits)


_STEPS: tuple[Callable[[_Answer], _Failure | None], ...] = (_structure, _finite_mask, _precision, _values)


def _own_limits(answer: _Answer, i: int) -> Iterator[Limit]:
    """Step 3: allclose to the reference; an element may instead meet step 4 where outputs cancel.

    Zero-mean outputs come arbitrarily near zero, where no honest float32 sum meets a relative tolerance.
    """
    expectation, tolerance = answer.expectation, answer.expectation.tolerance
    if not answer.is_inexact(i):
        tolerance = EXACT
    elif answer.applied(i).epsilon > answer.native(i).epsilon:
        tolerance = Tolerance(max(tolerance.rtol, REDUCED_TOLERANCE), max(tolerance.atol, REDUCED_TOLERANCE))
    yield Limit(expectation.expected[i], tolerance.rtol, tolerance.atol)
    if expectation.zero_mean and expectation.oracle is not None and answer.is_inexact(i):
        yield _scaled_limit(answer, i, answer.applied(i))


def _other_limits(answer: _Answer, i: int) -> Iterator[Limit]:
    """Step 4: within 1e-4 x scale of the oracle; exact on integers if the reference is."""
    expectation = answer.expectation
    if not answer.is_inexact(i):
        yield Limit(expectation.expected[i])
        return
    reference_exact = expectation.oracle is not None and answer.errors[i].reference_relative == 0
    if expectation.distribution == "integers" and reference_exact and answer.applied(i) is answer.native(i):
        yield Limit(answer.truths[i])
    else:
        yield _scaled_limit(answer, i, answer.applied(i))


def _repeat_limits(answer: _Answer, i: int) -> Iterator[Limit]:
    """Step 5: as close to the first answer as the tolerance says, near zero as close as elsewhere."""
    tolerance = answer.expectation.tolerance if answer.is_inexact(i) else EXACT
    yield Limit(answer.truths[i], tolerance.rtol, tolerance.atol, tolerance.rtol, answer.errors[i].rms)


def _scaled_limit(answer: _Answer, i: int, precision: Precision) -> Limit:
    """The componentwise bound; coarse formats add two roundings of inputs, all add one of the output."""
    finfo = torch.finfo(answer.outputs[i].dtype)
    factor = ELEMENT_LIMIT if precision.epsilon < ELEMENT_LIMIT else ELEMENT_LIMIT + 2 * precision.epsilon
    scales = answer.expectation.scale
    scale = answer.errors[i].rms if scales is None else scales[i]
    return Limit(answer.truths[i], max(finfo.eps, precision.epsilon), finfo.tiny, factor, scale)


def _elements(answer: _Answer, limits: Callable[[_Answer, int], Iterator[Limit]]) -> _Failure | None:
    """An element is wrong if it is beyond every limit; the first output with such an element fails."""
    for i in range(len(answer.outputs)):
        wrong = torch.ones_like(answer.outputs[i], dtype=torch.bool)
        for limit in limits(answer, i):
            if wrong.any():
                wrong &= beyond(*answer.pair(i), limit)
        if wrong.any():
            return _explained(answer, i, wrong)
    return None


def _explained(answer: _Answer, i: int, mask: torch.Tensor) -> _Failure:
    got, want = answer.outputs[i], answer.expectation.expected[i].to(answer.outputs[i].device)
    if got.is_floating_point() and got.element_size() == 1:  # float8 has next to no operators
        got, want = got.float(), want.float()
    wrong = Wrong(got, want, mask)
    if wrong.count == 0:
        text = f"{_name(answer, i)} has a relative error of {answer.errors[i].relative:.2g}, spread evenly."
        return _Failure(Status.WRONG_VALUES, text)
    shown, pattern = first_mismatches(wrong), describe(wrong)
    text = (
        f"{_name(answer, i)}: {wrong.count} of {mask.numel()} elements wrong, the first at "
        f"{list(shown[0].index)}: got {shown[0].got:.7g}, expected {shown[0].expected:.7g}. {pattern.text}"
    )
    return _Failure(Status.WRONG_VALUES, text.strip(), shown, pattern.advice, error_map(mask))


def _name(answer: _Answer, i: int) -> str:
    return "The output" if len(answer.outputs) == 1 else f"Output {i + 1} of {len(answer.outputs)}"


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    trailing = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(n in (1, size) for n, size in trailing)
