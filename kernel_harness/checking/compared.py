"""The right answer of a case, and a candidate's outputs beside it: their errors, and the precision that they show.

Values are computed on first use and cached. They have no side effects and work on tensors of any device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch

from kernel_harness.checking import coarseness, input_rounding
from kernel_harness.checking.coarseness import Coarse
from kernel_harness.checking.elementwise import Errors, measure
from kernel_harness.checking.input_rounding import Trace
from kernel_harness.core.precision import Change, Precision, Tolerance, is_inexact

MIN_PRECISION_NUMEL = 1024
"""The least number of output elements for the check that a candidate computed in an allowed number format.

With fewer elements, the average rounding error varies too much to distinguish number formats.
"""

NEARNESS = 32
"""An output is right if its error against float64 is at most NEARNESS times the reference's own error.

The rounding errors of a deep network grow from layer to layer, in the reference as in a candidate. An honest sum of
8,192 products in one chain has 13 times the error of torch's sum (docs/verdicts.md).
"""

TYPICAL_SHARE = 2e-5
"""An error of at most this share of the output's typical magnitude is that of a float32 sum.

The values of a running sum of numbers with mean zero come arbitrarily near zero, and each keeps the rounding errors of
all terms before it. One chain of 4,000 to 262,144 random numbers, in float32, had errors above allclose at 23 to 35,097
of two million values, none of them above 1e-5 of the median. torch adds in float64 there on a CPU, so the reference's
own error is no measure. One product of TF32 numbers is off by 2e-4.
"""

FEW, MANY = 64, 1024
"""At most FEW numbers that are computed from at least MANY times as many inputs are sums (`Compared.sum_error`)."""

ONE_CHAIN, OF_PARTS, SUM_ERROR = 1 << 20, 1e-8, 1e-4
"""The relative error of a sum of n float32 numbers is at most SUM_ERROR, and that of a long sum is OF_PARTS * sqrt(n).

A sum of up to ONE_CHAIN numbers may be one chain, in which each thread adds to one total: 262,144 squares had an error
of 7e-5. A longer sum adds up partial sums. Half of OF_PARTS was the largest that was measured for 2^20 to 2^28 numbers:
for chains of 2^18 numbers, and where each warp adds to one total (docs/verdicts.md).
"""

WELL_CONDITIONED, CONDITION_RUNS = 16, 3
"""A sum is well-conditioned if its terms are together at most this multiple of it, as changed inputs show."""

JITTER = 2.0**-17
"""The share by which inputs are changed at random: 64 times the rounding of float32 (`jittered`)."""


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
class Compared:
    """The outputs of a candidate, their Expectation, and their errors, which are computed on first use and cached."""

    outputs: tuple[torch.Tensor, ...]
    expectation: Expectation

    @property
    def truths(self) -> tuple[torch.Tensor, ...]:
        """Returns the oracle's outputs, or the reference's if there is no oracle."""
        return self.expectation.expected if self.expectation.oracle is None else self.expectation.oracle

    @cached_property
    def errors(self) -> tuple[Errors, ...]:
        """Returns the Errors of each output."""
        return tuple(map(measure, self.outputs, self.expectation.expected, self.truths))

    @property
    def max_abs(self) -> float | None:
        """Returns the largest absolute error of all outputs, or None if no element counts."""
        return max((e.max_abs for e in self.errors if e.max_abs is not None), default=None)

    @property
    def relative(self) -> float | None:
        """Returns the largest relative error of all outputs, in the Frobenius norm, or None if there is none."""
        return max((e.relative for e in self.errors if e.relative is not None), default=None)

    @property
    def unchecked(self) -> str:
        """Returns why the precision was not checked: no float64 outputs, or too few elements in each rounded output.

        Returns an empty string if it was checked, or if no output is rounded, because there is then no precision.
        """
        return unchecked(self.outputs, self.expectation.oracle_missing)

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
        """Returns whether the elements of output i are floating-point or complex numbers."""
        return is_inexact(self.outputs[i].dtype)

    def native(self, i: int) -> Precision:
        """Returns the number format of output i."""
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
        if i not in self._well_conditioned:
            terms = max(t.numel() for t in self.expectation.inputs)
            answers = [self.changed(i, partial(jittered, seed)) for seed in range(CONDITION_RUNS)]
            allowed = WELL_CONDITIONED * JITTER * self.truths[i].abs() / math.sqrt(terms)
            self._well_conditioned[i] = all(
                a is not None and bool(((a.to(allowed.device) - self.truths[i]).abs() <= allowed).all())
                for a in answers
            )
        return self._well_conditioned[i]

    @cached_property
    def _well_conditioned(self) -> dict[int, bool]:
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
        if errors.relative is None or errors.relative <= max(32 * (errors.reference_relative or 0), self.own_error(i)):
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
        expectation = self.expectation
        if oracle is None or expectation.zero_mean or not expectation.searches or expectation.rounded is None:
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

    def own_error(self, i: int) -> float:
        """Returns the largest relative error that output i's own format explains, or float32 if that is less."""
        return min(self.native(i).largest_error, Precision.FLOAT32.largest_error)


def unchecked(outputs: Sequence[torch.Tensor], missing: str = "") -> str:
    """Returns why the precision of outputs was not checked; see `Compared`. `missing` is why there is no oracle."""
    rounded = [output.numel() for output in outputs if is_inexact(output.dtype)]
    if not missing and 0 < max(rounded, default=0) < MIN_PRECISION_NUMEL:
        missing = f"outputs of fewer than {MIN_PRECISION_NUMEL} elements do not show their number format"
    return f"precision was not checked: {missing}" if missing and rounded else ""


def jittered(seed: int, tensor: torch.Tensor) -> torch.Tensor:
    """Returns a floating-point tensor in float64, each number changed by about JITTER of itself.

    A tensor of another dtype is returned as it is.
    """
    if not tensor.is_floating_point():
        return tensor
    generator = torch.Generator(tensor.device).manual_seed(seed)
    noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float64, device=tensor.device)
    return noise.mul_(JITTER).add_(1).mul_(tensor)


def _broadcasts(shape: Sequence[int], to: Sequence[int]) -> bool:
    trailing = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(n in (1, size) for n, size in trailing)
