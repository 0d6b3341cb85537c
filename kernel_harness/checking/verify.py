"""Decides whether the outputs of a candidate are right, which precision they show, and how they are wrong.

The functions have no side effects and work on tensors of any device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import torch

from kernel_harness.checking import coarseness, input_rounding, ties
from kernel_harness.checking.coarseness import Coarse
from kernel_harness.checking.elementwise import (
    Errors,
    Limit,
    all_finite,
    count,
    error_up_to,
    exceeds,
    largest_error,
    measure,
    non_finite_mismatch,
    typical,
    up_to,
)
from kernel_harness.checking.error_map import ErrorMap, error_map
from kernel_harness.checking.input_rounding import Trace
from kernel_harness.checking.patterns import Mismatch, Pattern, Wrong, describe, first_mismatches
from kernel_harness.core.precision import EXACT, REDUCED_TOLERANCE, Change, Precision, Tolerance, is_inexact
from kernel_harness.core.status import Status
from kernel_harness.problem.problem import OWN

MIN_PRECISION_NUMEL = 1024
"""The least number of output elements for the check that a candidate computed in an allowed number format.

With fewer elements, the average rounding error varies too much to distinguish number formats.
"""

NEARNESS = 32
"""An output is right if its error against float64 is at most NEARNESS times the reference's own error.

The rounding errors of a deep network grow from layer to layer, in the reference as in a candidate. An honest sum of
8,192 products in one chain has 13 times the error of torch's sum (docs/verdicts.md).
"""

LARGE = 64
"""An element of more than LARGE times the median magnitude is judged by the reference's errors at all elements."""

TAIL = 0.25
"""Elements at which the reference's error exceeds this share of the limits are ill-conditioned (`_is_tail`)."""

UNDECIDED_SHARE, UNDECIDED_RUNS, JITTER = 0.1, 24, 2.0**-17
"""At most UNDECIDED_SHARE of an output's whole numbers may be undecided (`_exact_limits`).

The reference runs up to UNDECIDED_RUNS times. Each time its inputs change by about JITTER of themselves, which is 64
times the rounding of float32. So a number that rounding errors can change does change in about half of these runs.
"""

SCALE_SHARE = 1e-3
"""The default absolute tolerance is at most this share of the output's RMS.

Without this limit, any small numbers would be accepted where the right answer consists of small numbers.
"""

TYPICAL_SHARE = 2e-5
"""An error of at most this share of the output's typical magnitude is that of a float32 sum.

The values of a running sum of numbers with mean zero come arbitrarily near zero, and each keeps the rounding errors of
all terms before it. One chain of 4,000 to 262,144 random numbers, in float32, had errors above allclose at 23 to 35,097
of two million values, none of them above 1e-5 of the median. torch adds in float64 there on a CPU, so the reference's
own error is no measure. One product of TF32 numbers is off by 2e-4.
"""

FEW, MANY = 64, 1024
"""At most FEW numbers that are computed from at least MANY times as many inputs are sums (`_Answer.sum_error`)."""

ONE_CHAIN, OF_PARTS, SUM_ERROR = 1 << 20, 1e-8, 1e-4
"""The relative error of a sum of n float32 numbers is at most SUM_ERROR, and that of a long sum is OF_PARTS * sqrt(n).

A sum of up to ONE_CHAIN numbers may be one chain, in which each thread adds to one total: 262,144 squares had an error
of 7e-5. A longer sum adds up partial sums. Half of OF_PARTS was the largest that was measured for 2^20 to 2^28 numbers:
for chains of 2^18 numbers, and where each warp adds to one total (docs/verdicts.md).
"""

WELL_CONDITIONED, CONDITION_RUNS = 16, 3
"""A sum is well-conditioned if its terms are together at most this multiple of it, as changed inputs show."""

WRONG_NORM = 1e-2
"""An output is wrong if its relative error, in the Frobenius norm, is at least this: no number format explains it."""

ELEMENT_LIMIT = 1e-4
"""The largest allowed error of an element, relative to the magnitude that `Expectation.scale` gives for the element."""

LEAST_BITS = 3.0
"""The significant bits of the coarsest format that is named: float8_e5m2. An int8 product shows 5 to 7."""

_OF_FAST_ALGORITHMS = (
    "the errors are small beside the norm of the output, but not beside the elements. Fast algorithms such as "
    "Strassen's err like this, and formats with few exponents. This problem limits the error of each element "
    "(error_scale)"
)

_COMPARED_BYTES = 1 << 28
_KEPT = "An output is overwritten after its call: a kernel must not count on what it has left in its output."

# Yields the limits for one output: an element is wrong if it exceeds all of them.
_Limits = Callable[["_Answer", int], Iterator[Limit]]


@dataclass(frozen=True)
class Expectation:
    """The right answer of one case, with the tolerances. Each field that is a tuple holds one tensor for each output.

    `case`: the name of the case in messages. `distribution`: "own" (the problem's own inputs), "integers" (small
    integers, whose exact answer the output's format can represent) or the name of another distribution. `expected`: the
    reference's outputs. `oracle`: the reference's outputs in float64; None if they cannot be computed, and then
    `oracle_missing` is the reason. `scale`: the magnitude with which the rounding error of each element is compared; it
    must broadcast to the output. If `scale` is None, the magnitude is the sum of the element's absolute value and the
    RMS of the oracle. `zero_mean`: the inputs have zero mean. Terms of an output then cancel, so its relative error
    shows the precision, and an element near zero can fail a plain allclose. `allowed_precision`: the coarsest format in
    which a candidate may compute; None allows only the output's own format. `inputs`: the input tensors, of which
    outputs may be indices (`ties`). `changed`: the indices of those input tensors that the reference changes in place;
    what it leaves there follows the outputs in `expected`, `oracle` and what `rounded` returns, and then there is no
    `scale`. `rounded`: a function that computes the oracle for inputs and weights after a
    Change, such as a rounding; it returns None if that is not possible. A None in its place stands for a function that
    always returns None. `terms`: an upper limit for the products of one sum, if the reference multiplies matrices and
    has an output of a half type, or a coarser format is allowed; otherwise 0. `composite`: the reference also calls
    operators that may be composed of others, such as a softmax. `searches`: the rounding of the inputs
    that an error shows is looked for, which may take 40 times as long as an answer.

    Raises ValueError if there is a reason `oracle_missing` although there is an oracle, if the oracle's shapes are not
    the reference's, if there are more or fewer scales than outputs, or if a scale does not broadcast to its output.
    """

    case: str
    distribution: str
    expected: tuple[torch.Tensor, ...]
    oracle: tuple[torch.Tensor, ...] | None
    scale: tuple[torch.Tensor, ...] | None
    tolerance: Tolerance
    zero_mean: bool = False
    allowed_precision: Precision | None = None
    oracle_missing: str = ""
    rounded: Callable[[Change], tuple[torch.Tensor, ...] | None] | None = None
    inputs: tuple[torch.Tensor, ...] = ()
    changed: tuple[int, ...] = ()
    terms: int = 0
    composite: bool = False
    searches: bool = True

    def __post_init__(self) -> None:
        if self.oracle is not None and self.oracle_missing:
            raise ValueError("oracle_missing must be empty, because there is an oracle")
        shapes = [e.shape for e in self.expected]
        if self.oracle is not None and [o.shape for o in self.oracle] != shapes:
            raise ValueError("the oracle (the reference in float64) has outputs of other shapes than `expected`")
        if self.scale is None:
            return
        if len(self.scale) != len(shapes):
            raise ValueError(f"error_scale gave {len(self.scale)} tensors for {len(shapes)} outputs")
        for scale, shape in zip(self.scale, shapes, strict=True):
            if not _broadcasts(scale.shape, shape):
                raise ValueError(f"error_scale of shape {tuple(scale.shape)} does not broadcast to {tuple(shape)}")

    @property
    def of_outputs(self) -> Expectation:
        """Returns the Expectation without the inputs that the reference changes."""
        count = len(self.expected) - len(self.changed)
        oracle = None if self.oracle is None else self.oracle[:count]
        return replace(self, expected=self.expected[:count], oracle=oracle, changed=())


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
    answer = _Answer(tuple(outputs), expectation)
    failure = _described(answer, _first_failure(answer))
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
        unchecked=answer.unchecked,
    )


def status(outputs: Sequence[torch.Tensor], expectation: Expectation) -> Status:
    """Returns the status that `verify` gives, without its description of wrong elements, which takes longer."""
    return _first_failure(_Answer(tuple(outputs), expectation)).status


def _first_failure(answer: _Answer) -> _Failure:
    return next((f for f in (step(answer) for step in _STEPS) if f is not None), _Failure(Status.PASSED))


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
    answer = _Answer(tuple(second), Expectation(case, "repeat", tuple(first), None, None, tolerance, changed=changed))
    failure = _structure(answer) or _finite_mask(answer, _repeat_limits) or _elements(answer, _repeat_limits)
    if failure is None:
        return Check(case, Status.PASSED, answer.max_abs, answer.relative)
    failure = _described(answer, failure)
    detail = f"The second call with the same input gave a different answer. {failure.detail} {_KEPT}"
    return Check(
        case, Status.NONDETERMINISTIC, first_mismatches=failure.mismatches, detail=detail, error_map=failure.error_map
    )


def unchanged(before: torch.Tensor | bytes, after: torch.Tensor | bytes) -> bool:
    """Returns whether two values are equal in all bytes, NaN payloads and signs of zeros included.

    Tensors must also have equal shapes and dtypes.
    """
    if isinstance(before, bytes) or isinstance(after, bytes):
        return before == after
    if before.shape != after.shape or before.dtype != after.dtype:
        return False
    # In pieces: on a GPU, torch.equal needs as much memory as the bytes that it compares.
    parts = (_bytes_of(tensor).split(_COMPARED_BYTES) for tensor in (before, after))
    return all(torch.equal(one, other.to(one.device)) for one, other in zip(*parts, strict=True))


@dataclass(frozen=True)
class _Failure:
    """Why one of the checks that `verify` makes has failed. The status is that of the Check; PASSED is no failure.

    `wrong` is the index of an output and the mask of its wrong elements, which `_described` describes in `detail`. It
    is None for a wrong structure or number format.
    """

    status: Status
    detail: str = ""
    mismatches: tuple[Mismatch, ...] = ()
    advice: str = ""
    error_map: ErrorMap | None = None
    wrong: tuple[int, torch.Tensor] | None = None


@dataclass(frozen=True)
class _Answer:
    """The outputs of a candidate, their Expectation, and their errors, which are computed on first use and cached."""

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
    def unchecked(self) -> str:
        """Returns why the precision was not checked: no float64 outputs, or too few elements in each rounded output.

        Returns an empty string if it was checked, or if no output is rounded, because there is then no precision.
        """
        rounded = [output.numel() for i, output in enumerate(self.outputs) if self.is_inexact(i)]
        missing = self.expectation.oracle_missing
        if not missing and 0 < max(rounded, default=0) < MIN_PRECISION_NUMEL:
            missing = f"outputs of fewer than {MIN_PRECISION_NUMEL} elements do not show their number format"
        return f"precision was not checked: {missing}" if missing and rounded else ""

    @property
    def precision(self) -> Precision | None:
        """Returns the coarsest number format that the outputs show.

        For inputs with zero mean, the size of the errors shows the format; otherwise, a rounding of the inputs does
        (`traces`). Returns None if no output can show its format, or if the error of an output is larger than any
        format causes.
        """
        classes = [self.shown(i) for i in range(len(self.outputs)) if self.shows_precision(i)]
        classes += [trace.rounding.precision for trace in self.traces if trace is not None]
        classes += [self.allowed(i) for i in range(len(self.outputs)) if self.uses_allowed(i)]
        known = [p for p in classes if p is not None]
        return max(known, key=lambda p: p.epsilon) if known and len(known) == len(classes) else None

    def pair(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the candidate's output i and the reference's output i."""
        return self.outputs[i], self.expectation.expected[i]

    def is_inexact(self, i: int) -> bool:
        return is_inexact(self.outputs[i].dtype)

    def native(self, i: int) -> Precision:
        return Precision.of(self.outputs[i].dtype)

    def allowed(self, i: int) -> Precision:
        """Returns the coarsest number format in which output i may be computed, at least the output's own format."""
        native = self.native(i)
        return max(native, self.expectation.allowed_precision or native, key=lambda p: p.epsilon)

    def applied(self, i: int) -> Precision:
        """Returns the number format whose tolerance applies to output i: the format that the size of its error shows.

        If the error cannot show a format, or no format causes so large an error, returns the coarsest allowed format.
        """
        shown = self.shown(i) if self.shows_precision(i) else None
        return shown or self.allowed(i)

    def sum_error(self, i: int) -> float | None:
        """Returns the largest relative error that a float32 sum has, if output i consists of FEW sums, else None.

        Returns None without an oracle, for another dtype than float32, if a coarser format is allowed, and for a
        TOLERANCE that the problem file states.
        """
        expectation, output = self.expectation, self.outputs[i]
        if expectation.oracle is None or output.dtype is not torch.float32 or not expectation.tolerance.follows_scale:
            return None
        terms = max((t.numel() for t in expectation.inputs), default=0) // max(1, output.numel())
        if not 0 < output.numel() <= FEW or terms < MANY or self.allowed(i) is not self.native(i):
            return None
        long = max(TYPICAL_SHARE, OF_PARTS * math.sqrt(terms))
        return SUM_ERROR if terms <= ONE_CHAIN else min(SUM_ERROR, long)

    def is_well_conditioned(self, i: int) -> bool:
        """Returns whether no element of output i is the small difference of large sums.

        If each of n inputs changes by a random share of about JITTER, a sum changes by JITTER times the root of the sum
        of its squared terms. That is at least the sum of their magnitudes, times JITTER, divided by the root of n.
        """
        if i not in self._conditioned:
            terms = max(t.numel() for t in self.expectation.inputs)
            answers = [self.changed(i, partial(_jittered, seed)) for seed in range(CONDITION_RUNS)]
            allowed = WELL_CONDITIONED * JITTER * self.truths[i].abs() / math.sqrt(terms)
            self._conditioned[i] = all(
                a is not None and bool(((a.to(allowed.device) - self.truths[i]).abs() <= allowed).all())
                for a in answers
            )
        return self._conditioned[i]

    @cached_property
    def _conditioned(self) -> dict[int, bool]:
        return {}

    def shows_precision(self, i: int) -> bool:
        """Returns whether output i can show in which number format it was computed.

        That needs an oracle, inputs with zero mean, and at least MIN_PRECISION_NUMEL elements, which are floating-point
        or complex. The right answer must have a finite element that is not zero. The output must not be all rounding
        error (`is_noise`).
        """
        if self.expectation.oracle is None or not self.expectation.zero_mean or not self.is_inexact(i):
            return False
        if self.is_noise(i):
            return False
        return bool(self.outputs[i].numel() >= MIN_PRECISION_NUMEL and self.errors[i].rms > 0)

    def is_noise(self, i: int) -> bool:
        """Returns whether output i may be all rounding error.

        That is so if the RMS of the right answer is at most NEARNESS times the RMS of the reference's error.
        """
        errors = self.errors[i]
        return errors.reference_error_rms > 0 and errors.rms <= NEARNESS * errors.reference_error_rms

    def shown(self, i: int) -> Precision | None:
        """Returns the finest format that explains the error of output i; None if no format causes so large an error.

        The error is relative, in the Frobenius norm. The output's own format explains up to 32 times the reference's
        error, and always up to its `largest_error`, or that of float32 if that is smaller. A coarser format explains
        any error below its `largest_error`.
        """
        errors, native = self.errors[i], self.native(i)
        if errors.relative is None or errors.relative <= max(
            32 * (errors.reference_relative or 0.0), _own_error(self, i)
        ):
            return native
        coarser = (p for p in Precision if p.epsilon > native.epsilon and errors.relative < p.largest_error)
        return next(coarser, None)

    @cached_property
    def traces(self) -> tuple[Trace | None, ...]:
        """Returns, for each output, the rounding of the inputs that its error shows, or None.

        Only float32 outputs of at least MIN_PRECISION_NUMEL elements, for inputs without zero mean, are examined. With
        zero mean, the size of the error suffices. Without an oracle or `Expectation.rounded`, no output is examined.
        """
        return tuple(map(self._trace, range(len(self.outputs))))

    def _trace(self, i: int) -> Trace | None:
        oracle = self.expectation.oracle
        if oracle is None or self.expectation.zero_mean or not self.expectation.searches:
            return None
        if self.expectation.rounded is None:
            return None
        if self.outputs[i].dtype is not torch.float32 or self.outputs[i].numel() < MIN_PRECISION_NUMEL:
            return None
        return input_rounding.find(self.outputs[i], oracle[i], self.errors[i], partial(self.changed, i))

    def coarse(self, i: int, precision: Precision) -> Coarse | None:
        """Returns how much more coarsely than in `precision` output i was computed, or None.

        Only outputs of at least MIN_PRECISION_NUMEL elements are examined, of a half type, or of float32 if `precision`
        is coarser and the inputs have no zero mean, with which the size of the error suffices. The reference must
        multiply matrices, because other operations gain nothing from shorter formats. There must be an oracle and
        `Expectation.rounded`.
        """
        if (i, precision) not in self._coarse:
            self._coarse[i, precision] = self._found_coarse(i, precision)
        return self._coarse[i, precision]

    @cached_property
    def _coarse(self) -> dict[tuple[int, Precision], Coarse | None]:
        return {}

    def _found_coarse(self, i: int, precision: Precision) -> Coarse | None:
        expectation, output = self.expectation, self.outputs[i]
        if expectation.oracle is None or expectation.rounded is None or not expectation.terms:
            return None
        wide = output.dtype is torch.float32 and precision is not self.native(i) and not expectation.zero_mean
        if output.numel() < MIN_PRECISION_NUMEL or not (wide or output.dtype in coarseness.HALVES):
            return None
        pair = expectation.expected[i], expectation.oracle[i]
        return coarseness.find(
            output, *pair, precision, partial(self.changed, i), expectation.terms, expectation.composite
        )

    def uses_allowed(self, i: int) -> bool:
        """Returns whether output i, of a half type, was computed in the coarser format that is allowed."""
        if not self.is_inexact(i) or self.allowed(i) is self.native(i):
            return False
        return self.coarse(i, self.native(i)) is not None and self.coarse(i, self.allowed(i)) is None

    def changed(self, i: int, change: Change) -> torch.Tensor | None:
        """Returns the right answer for output i after a Change of inputs and weights; None if it is not known."""
        expectation = self.expectation
        answers = expectation.rounded(change) if expectation.rounded else None
        # The shape may depend on the numbers, as that of `x[x > 0.5]` does.
        return answers[i] if answers and answers[i].shape == expectation.expected[i].shape else None


def _structure(answer: _Answer) -> _Failure | None:
    """Checks that the outputs have the number, the shapes and the dtypes of the reference's outputs."""
    outputs, expected, after = answer.outputs, answer.expectation.expected, len(answer.expectation.changed)
    if len(outputs) != len(expected):
        text = f"Got {len(outputs) - after} outputs, expected {len(expected) - after}."
        return _Failure(Status.WRONG_SHAPE, text)
    for i, (got, want) in enumerate(zip(outputs, expected, strict=True)):
        if got.shape != want.shape:
            text = f"{_name(answer, i)} has shape {tuple(got.shape)}, expected {tuple(want.shape)}."
            return _Failure(Status.WRONG_SHAPE, text)
    for i, (got, want) in enumerate(zip(outputs, expected, strict=True)):
        if got.dtype != want.dtype:
            return _Failure(Status.WRONG_DTYPE, f"{_name(answer, i)} is {got.dtype}, expected {want.dtype}.")
    return None


def _finite_mask(answer: _Answer, limits: _Limits | None = None) -> _Failure | None:
    """Checks that NaN, +Inf and -Inf are in exactly the same elements as in the reference.

    If not, the failure describes all wrong elements, also those that are finite and exceed the limits (`_elements`).
    Without `limits`, these are the limits that belong to the distribution of the inputs.
    """
    for i, (got, want) in enumerate(zip(answer.outputs, answer.expectation.expected, strict=True)):
        if answer.is_inexact(i) and not answer.errors[i].finite:
            wrong = non_finite_mismatch(got, want)
            if wrong.any():
                return _wrong(i, wrong | _beyond(answer, i, limits or _limits_of(answer)))
    return None


def _coarseness(answer: _Answer) -> _Failure | None:
    """Checks that no output was computed in a format that is coarser than the allowed one (`_Answer.coarse`).

    The status is REDUCED_PRECISION if factors of the `Coarse.bits` that were found explain the error of every element,
    and if these are at least LEAST_BITS or the error is below WRONG_NORM. Otherwise it is WRONG_VALUES.
    """
    for i in filter(answer.is_inexact, range(len(answer.outputs))):
        allowed = answer.allowed(i)
        coarse = answer.coarse(i, allowed)
        if coarse is None:
            continue
        wrong = exceeds(*answer.pair(i), _scaled_limit(answer, i, 2.0 ** (1 - max(coarse.bits, LEAST_BITS))))
        if wrong.any() or (coarse.bits < LEAST_BITS and coarse.error >= WRONG_NORM):
            return _wrong(i, wrong)
        before = " before its last rounding" if answer.outputs[i].dtype in coarseness.HALVES else ""
        text = (
            f"{_name(answer, i)} has a relative error of {coarse.error:.2g} against float64{before}; that of the "
            f"reference is {coarse.reference:.2g}. Factors of {coarse.bits:.1f} significant bits cause an error of "
            f"this size (so do sums in a half type); {allowed} has {1 - round(math.log2(allowed.epsilon))}."
        )
        advice = f"keep factors in {allowed} and sums in float32, and round each output once"
        return _Failure(Status.REDUCED_PRECISION, text, advice=advice)
    return None


def _precision(answer: _Answer) -> _Failure | None:
    """Checks, for inputs with zero mean, that an allowed number format explains the Frobenius norm of each error.

    An output fails only if its norm is too large for the allowed formats. The status is REDUCED_PRECISION if a coarser
    format explains both the norm and the error of every element (`_scaled_limit`), because rounding errors are spread
    over all elements. Otherwise the status is WRONG_VALUES.
    """
    for i in filter(answer.shows_precision, range(len(answer.outputs))):
        shown, errors = answer.shown(i), answer.errors[i]
        if shown is not None and shown.epsilon <= answer.allowed(i).epsilon:
            continue
        wrong = exceeds(*answer.pair(i), _scaled_limit(answer, i, (shown or answer.allowed(i)).epsilon))
        if shown is None or wrong.any():
            return _wrong(i, wrong)
        also = " (so do sums that are kept in float16)" if shown is Precision.BFLOAT16 else ""
        text = (
            f"{_name(answer, i)} has a relative error of {errors.relative:.2g} against float64, which is the size that "
            f"{shown} causes{also}; the error of the {answer.native(i)} reference is {errors.reference_relative:.2g}."
        )
        return _Failure(Status.REDUCED_PRECISION, text)
    return None


def _values(answer: _Answer) -> _Failure | None:
    """Checks the error of every element against the limits that belong to the distribution of the inputs."""
    return _elements(answer, _limits_of(answer))


def _limits_of(answer: _Answer) -> _Limits:
    return _own_limits if answer.expectation.distribution == OWN else _other_limits


def _input_rounding(answer: _Answer) -> _Failure | None:
    """Checks, for inputs without zero mean, that no error shows inputs rounded to a format that is not allowed."""
    for i, trace in enumerate(answer.traces):
        if trace is not None and trace.rounding.precision.epsilon > answer.allowed(i).epsilon:
            errors = answer.errors[i]
            text = (
                f"{_name(answer, i)} has the errors that inputs rounded to {trace.rounding.precision} cause "
                f"(correlation {trace.correlation:.2f}); the relative error against float64 is {errors.relative:.2g}, "
                f"that of the {answer.native(i)} reference is {errors.reference_relative:.2g}."
            )
            return _Failure(Status.REDUCED_PRECISION, text)
    return None


def _error_norm(answer: _Answer) -> _Failure | None:
    """Checks that the RMS of no output's error is that of a wrong answer, even if each element is within its limit.

    The limit is a share of the right answer's RMS, or NEARNESS times the RMS of the reference's error if that is
    larger. The share is WRONG_NORM, or the epsilon of the dtype if that is larger. A tolerance that the problem file
    states allows at least as much as it allows an element as large as the RMS. An output that is all zeros, or may be
    all rounding error (`is_noise`), is not checked.
    """
    tolerance = answer.expectation.tolerance
    for i in filter(answer.is_inexact, range(len(answer.outputs))):
        errors = answer.errors[i]
        share = max(WRONG_NORM, torch.finfo(answer.outputs[i].dtype).eps)
        allowed = max(share * errors.rms, NEARNESS * errors.reference_error_rms)
        if not tolerance.follows_scale:
            allowed = max(allowed, tolerance.atol + tolerance.rtol * errors.rms)
        if errors.rms > 0 and errors.error_rms > allowed and not answer.is_noise(i):
            return _wrong(i, exceeds(*answer.pair(i), Limit(answer.truths[i], share, share * errors.rms)))
    return None


_STEPS: tuple[Callable[[_Answer], _Failure | None], ...] = (
    _structure, _finite_mask, _coarseness, _precision, _values, _error_norm, _input_rounding,
)  # fmt: skip


def _own_limits(answer: _Answer, i: int) -> Iterator[Limit]:
    """Yields the limits for output i with the problem's own inputs. An element is right if it meets one of the limits.

    The first limit is the tolerance around the reference's output. A default `atol` follows the magnitude of the output
    (SCALE_SHARE, TYPICAL_SHARE), and `rtol` and `atol` are increased where a format coarser than the output's applies
    (`applied`). The next limits are nearness to the oracle (`_nearness`). For inputs with zero mean, the last is the
    limit for other distributions (`_scaled_limit`): outputs can then be arbitrarily near zero, where an honest float32
    sum does not meet a relative tolerance. Few sums of many numbers have narrower limits (`_sum_limits`), unless they
    are ill-conditioned. Outputs of integers or booleans have other limits (`_exact_limits`).
    """
    expectation, tolerance = answer.expectation, answer.expectation.tolerance
    if not answer.is_inexact(i):
        yield from _exact_limits(answer, i)
        return
    if (share := answer.sum_error(i)) is not None:
        yield from _sum_limits(answer, i, share)
        if answer.is_well_conditioned(i):
            return
    rtol, atol = tolerance.rtol, tolerance.atol
    if answer.applied(i).epsilon > answer.native(i).epsilon:
        rtol, atol = max(rtol, REDUCED_TOLERANCE), max(atol, REDUCED_TOLERANCE)
    if tolerance.follows_scale and answer.errors[i].rms > 0 and not answer.is_noise(i):
        atol = min(atol, max(SCALE_SHARE, 8 * answer.applied(i).epsilon) * answer.errors[i].rms)
        if answer.native(i).epsilon < ELEMENT_LIMIT:
            atol = max(atol, TYPICAL_SHARE * typical(answer.truths[i]))
    yield Limit(expectation.expected[i], rtol, atol)
    yield from _nearness(answer, i)
    if expectation.zero_mean and expectation.oracle is not None:
        yield _scaled_limit(answer, i, answer.applied(i).epsilon)


def _sum_limits(answer: _Answer, i: int, share: float) -> Iterator[Limit]:
    """Yields the limits for an output of few sums: a relative error of `share` against the oracle, and `_nearness`."""
    yield Limit(answer.truths[i], rtol=share)
    yield from _nearness(answer, i)


def _other_limits(answer: _Answer, i: int) -> Iterator[Limit]:
    """Yields the limits for output i with other inputs than the problem's own: `_scaled_limit` and `_nearness`.

    An element is right if it meets one of the limits. An output that may be all rounding error (`is_noise`) has also
    the tolerance around the reference's output as a limit. For the distribution "integers", the output must equal the
    oracle (the reference's output in float64) if the reference itself does, unless a coarser format applies
    (`applied`). Few sums and outputs of integers or booleans have other limits, as in `_own_limits`.
    """
    expectation = answer.expectation
    if not answer.is_inexact(i):
        yield from _exact_limits(answer, i)
        return
    if (share := answer.sum_error(i)) is not None:
        yield from _sum_limits(answer, i, share)
        if answer.is_well_conditioned(i):
            return
    reference_exact = expectation.oracle is not None and answer.errors[i].reference_relative == 0
    if expectation.distribution == "integers" and reference_exact and answer.applied(i) is answer.native(i):
        yield Limit(answer.truths[i])
    else:
        yield _scaled_limit(answer, i, answer.applied(i).epsilon)
        yield from _nearness(answer, i)
        if answer.is_noise(i):
            yield Limit(expectation.expected[i], expectation.tolerance.rtol, expectation.tolerance.atol)


def _exact_limits(answer: _Answer, i: int) -> Iterator[Limit]:
    """Yields the limits for an output of integers or booleans: each element must equal the reference's.

    The index of a number in a sort, a top-k or an extremum may instead be that of an equal number (`ties`). If the
    output follows from rounded numbers, as the index of a maximum does, the last bits decide a few elements. If at most
    UNDECIDED_SHARE of the elements differ, each of them may instead equal the oracle's, or an oracle's for slightly
    changed inputs. That needs the function `Expectation.rounded`.
    """
    expected, rounded = answer.expectation.expected[i], answer.expectation.rounded
    yield Limit(expected)
    differing = count(exceeds(*answer.pair(i), Limit(expected)))
    changed = partial(answer.changed, i)
    alike = ties.alike(*answer.pair(i), answer.expectation.inputs, changed) if differing else None
    if alike is not None:
        expected = answer.outputs[i].where(alike, expected)
        yield Limit(expected)
        differing = count(exceeds(answer.outputs[i], expected, Limit(expected)))
    if rounded is None or differing > UNDECIDED_SHARE * expected.numel():
        return
    if answer.expectation.oracle is not None:
        yield Limit(answer.truths[i])
    for seed in range(UNDECIDED_RUNS):
        answers = rounded(partial(_jittered, seed))
        if not answers or answers[i].shape != expected.shape or answers[i].dtype is not expected.dtype:
            return
        yield Limit(answers[i])


def _jittered(seed: int, tensor: torch.Tensor) -> torch.Tensor:
    """Returns a floating-point tensor in float64, each number changed by about JITTER of itself.

    A tensor of another dtype is returned as it is.
    """
    if not tensor.is_floating_point():
        return tensor
    generator = torch.Generator(tensor.device).manual_seed(seed)
    noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64, device=tensor.device)
    return noise.mul_(JITTER).add_(1).mul_(tensor)


def _nearness(answer: _Answer, i: int) -> Iterator[Limit]:
    """Yields the limits that allow every element of output i NEARNESS times the RMS of the reference's error.

    Where the answers reach over many powers of ten, the errors of the largest elements must not excuse the others. So
    for elements up to LARGE times the median magnitude, only the reference's errors at such elements count.
    """
    truth, error_rms = answer.truths[i], answer.errors[i].reference_error_rms
    large = LARGE * typical(truth)
    usual_rms = error_up_to(large, answer.expectation.expected[i], truth)
    if usual_rms is None:
        yield Limit(truth, atol=NEARNESS * error_rms)
    else:
        yield Limit(truth, atol=NEARNESS * min(usual_rms, error_rms))
        yield Limit(truth, atol=NEARNESS * error_rms, above=large)


def _repeat_limits(answer: _Answer, i: int) -> Iterator[Limit]:
    """Yields the limit for a second call with equal inputs: the problem's tolerance around the first answer.

    The tolerance is increased by `rtol` times the RMS of the first answer, for elements near zero. Integers and
    booleans must be equal.
    """
    tolerance = answer.expectation.tolerance if answer.is_inexact(i) else EXACT
    yield Limit(answer.truths[i], tolerance.rtol, tolerance.atol, tolerance.rtol, answer.errors[i].rms)


def _scaled_limit(answer: _Answer, i: int, epsilon: float) -> Limit:
    """Returns the limit for the errors of output i if a candidate computes in a number format with this `epsilon`.

    The limit is f * magnitude + e * |truth|. The magnitude is that of `Expectation.scale`. f is 1e-4. If `epsilon` is
    at least 1e-4, f is 1e-4 + 2 * epsilon, for the rounding of two inputs. e is the larger of this epsilon and that of
    the output's dtype, for the rounding of the output. The truth is the right answer. Without `Expectation.scale`, the
    magnitude is its RMS, and e is at least 1e-4.
    """
    finfo = torch.finfo(answer.outputs[i].dtype)
    factor = ELEMENT_LIMIT if epsilon < ELEMENT_LIMIT else ELEMENT_LIMIT + 2 * epsilon
    scales, rtol = answer.expectation.scale, max(finfo.eps, epsilon)
    if scales is None:  # the RMS says nothing of elements that are much larger
        return Limit(answer.truths[i], max(rtol, ELEMENT_LIMIT), finfo.tiny, factor, answer.errors[i].rms)
    return Limit(answer.truths[i], rtol, finfo.tiny, factor, scales[i])


def _elements(answer: _Answer, limits: _Limits) -> _Failure | None:
    """Checks every element of every output. Returns a _Failure for the first output with a wrong element, or None.

    An element is wrong if its error exceeds every limit that `limits` yields for its output. The wrong elements of an
    output are all ignored if the reference has errors like theirs (`_is_tail`).
    """
    for i in range(len(answer.outputs)):
        wrong = _beyond(answer, i, limits)
        if wrong.any() and not _is_tail(answer, i, limits, wrong):
            return _wrong(i, wrong)
    return None


def _is_tail(answer: _Answer, i: int, limits: _Limits, wrong: torch.Tensor) -> bool:
    """Returns whether the errors at the elements `wrong` are those of ill-conditioned elements, as the reference's are.

    GroupNorm over two numbers that are nearly equal multiplies their rounding errors by any factor, so a few elements
    of each float32 computation are far from the oracle, and they need not be the same ones. With such a tail of errors
    that falls as 1/x, the reference has four times as many elements beyond TAIL of the limits as beyond the limits. So
    a candidate may have half as many elements beyond the limits as the reference has beyond TAIL of the limits, with
    errors of at most NEARNESS times the largest of these. The reference's elements that are larger than LARGE times the
    median and than those at `wrong` do not count, because their errors are larger too. Returns False without an oracle,
    and unless the output has only finite floating-point or complex numbers.
    """
    got, want = answer.pair(i)
    if not answer.is_inexact(i) or answer.expectation.oracle is None or not all_finite(got):
        return False
    like = torch.ones_like(wrong)
    for limit in limits(answer, i):
        if limit.truth is not want:
            parts = {name: TAIL * getattr(limit, name) for name in ("rtol", "atol", "factor")}
            like &= exceeds(want, want, replace(limit, **parts)).to(like.device)
    truth = answer.truths[i]
    like &= up_to(max(LARGE * typical(truth), largest_error(truth, torch.zeros_like(truth), wrong)), truth).to(
        like.device
    )
    if like.all() or 2 * count(wrong) > count(like):
        return False
    return largest_error(got, truth, wrong) <= NEARNESS * largest_error(want, truth, like)


def _beyond(answer: _Answer, i: int, limits: _Limits) -> torch.Tensor:
    """Returns a boolean tensor that is True where output i exceeds every limit that `limits` yields for it."""
    wrong = torch.ones_like(answer.outputs[i], dtype=torch.bool)
    for limit in limits(answer, i):
        wrong &= exceeds(*answer.pair(i), limit)
        if not wrong.any():
            break
    return wrong


def _wrong(i: int, mask: torch.Tensor) -> _Failure:
    return _Failure(Status.WRONG_VALUES, wrong=(i, mask))


def _described(answer: _Answer, failure: _Failure) -> _Failure:
    """Returns a new failure with a text that describes the mask of wrong elements in `failure.wrong`.

    If the mask is True nowhere, the text has the relative error of the output. Otherwise it has the number of wrong
    elements, the first of them and their pattern, and the new failure also has the error map. Returns `failure` itself
    if it has no mask.
    """
    if failure.wrong is None:
        return failure
    i, mask = failure.wrong
    got, want = answer.outputs[i], answer.expectation.expected[i].to(answer.outputs[i].device)
    if got.is_floating_point() and got.element_size() == 1:  # torch implements few operators for float8
        got, want = got.float(), want.float()
    wrong = Wrong(got, want, mask)
    if wrong.count == 0:
        text = f"{_name(answer, i)} has a relative error of {answer.errors[i].relative:.2g}, spread over all elements."
        return _Failure(Status.WRONG_VALUES, text)
    shown, pattern = first_mismatches(wrong), _input_pattern(answer, i) or describe(wrong)
    odd = 0 if want.is_complex() or all_finite(got) else count(mask & ~got.isfinite())
    some = f" {odd} of the wrong elements are NaN or infinite." if 0 < odd < wrong.count else ""
    text = (
        f"{_name(answer, i)}: {wrong.count} of {mask.numel()} elements wrong, the first at "
        f"{list(shown[0].index)}: got {shown[0].got:.7g}, expected {shown[0].expected:.7g}.{some} {pattern.text}"
    )
    advice = pattern.advice or (_OF_FAST_ALGORITHMS if _is_small_beside_norm(answer, i) else "")
    return _Failure(Status.WRONG_VALUES, text.strip(), shown, advice, error_map(mask))


def _is_small_beside_norm(answer: _Answer, i: int) -> bool:
    """Returns whether elements of output i have a scale, and its error is that of its own format beside its norm."""
    relative = answer.errors[i].relative if answer.expectation.scale is not None and answer.is_inexact(i) else None
    return relative is not None and relative <= _own_error(answer, i)


def _own_error(answer: _Answer, i: int) -> float:
    return min(answer.native(i).largest_error, Precision.FLOAT32.largest_error)


def _name(answer: _Answer, i: int) -> str:
    number, count = _changed_input(answer, i), len(answer.outputs) - len(answer.expectation.changed)
    if number is not None:
        return f"Input {number + 1} after the call"
    return "The output" if count == 1 else f"Output {i + 1} of {count}"


def _changed_input(answer: _Answer, i: int) -> int | None:
    """Returns the index of the input that output i is as the call has left it, or None if it is none."""
    changed = answer.expectation.changed
    number = i - len(answer.outputs) + len(changed)
    return changed[number] if number >= 0 else None


def _input_pattern(answer: _Answer, i: int) -> Pattern | None:
    """Returns the Pattern of wrong elements of an input that the reference changes, or None for another output."""
    number, inputs = _changed_input(answer, i), answer.expectation.inputs
    if number is None:
        return None
    left = inputs and unchanged(answer.outputs[i], inputs[number])
    text = f"The reference changes this input in place{', and the call left it as it was' if left else ''}."
    return Pattern(text, "write to the input what the reference writes there: its caller may read it")


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    trailing = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(n in (1, size) for n, size in trailing)
