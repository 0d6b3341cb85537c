"""Finds out whether an output was computed in a format that is coarser than the one that is allowed.

The last rounding of a half-precision output hides what was computed before: in a sum of positive numbers, an int8
product errs by a tenth of it. Where a problem may be computed in a coarser format, its tolerance hides as much. So the
error before the last rounding is estimated, and compared with the effect of rounding the inputs to the format
(docs/verdicts.md has the figures).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from kernel_harness.checking.elementwise import finite, pieces
from kernel_harness.core.precision import Change, Precision, Rounding
from kernel_harness.problem.lookalikes import is_measured

HALVES = (torch.float16, torch.bfloat16)

LINE = 1.5
"""An error before the last rounding is that of a coarser format if it exceeds LINE times the effect of rounded inputs.

The probabilities of flash attention in half precision are at 0.5 to 1.2, partial sums in half precision at 0.7 for
inputs with zero mean, int8 weights at 1.7 and more, int8 products at 2.4 and more.
"""

LINE_IN_FLOAT32 = 2.0
"""In place of LINE for a float32 output, if a coarser format is allowed: kernels round what is between layers, too."""

LEAST_ERROR_IN_FLOAT32 = 1e-5
"""In place of LEAST_ERROR and ERROR_PER_TERM for a float32 output, whose errors count without a common FACTOR."""

FACTOR = 8.0
"""A part of an error that is one factor for all elements, of at most FACTOR units of rounding, does not count.

Tensor cores that read float32 as TF32 ignore the last bits, so each product of positive numbers is too small.
"""

REFERENCE = 1.5
"""The error may be this multiple of the reference's own: a model of several operations rounds each result."""

LEAST_ERROR, ERROR_PER_TERM = 3e-5, 4e-9
"""A sum of n products that is kept in float32 has a smaller relative error than LEAST_ERROR or n * ERROR_PER_TERM.

Tensor cores add eight products at a time and cut each sum to 25 bits, which errs by 1e-5 for 8,192 positive products.
"""

ROUNDINGS, ROUNDING = 12, 0.21
"""If the reference calls operators such as softmax or a norm, results may be rounded ROUNDINGS times.

A kernel may compose such an operator of several in the half type, each of which rounds its result: a layer with its
bias, a residual and LayerNorm has ten. The root mean square of a relative rounding error is ROUNDING times the distance
from 1 to the next number.
"""

DEVIATIONS = 5.0
"""The estimate must exceed the limit by so many of its standard deviations."""

_SEED = 1


@dataclass(frozen=True)
class Coarse:
    """An output that was computed too coarsely. The errors are relative, in the Frobenius norm.

    `error` and `reference` are the errors of the output and of the reference before their last roundings. `bits` is how
    many significant bits the numbers have that were multiplied, if rounded inputs are the cause of the error.
    """

    error: float
    reference: float
    bits: float


@dataclass(frozen=True)
class Dither:
    """A Change by as much as a rounding to `precision`, in a random direction.

    A number of a half type has no bits to round. So one number in twelve moves up or down by the distance of two
    numbers of `precision`: its mean square is that of the rounding, 1/12 of this distance squared. A float32 number
    moves by as much as the rounding changes it (`Rounding`). Zeros and tensors of choices (`is_measured`) stay.
    """

    precision: Precision
    seed: int

    def __call__(self, values: torch.Tensor) -> torch.Tensor:
        """Returns the changed numbers. A tensor of another dtype is returned as it is."""
        if values.dtype is torch.float32 and is_measured(values):
            return Rounding(self.precision, signs_seed=self.seed)(values)
        if values.dtype not in HALVES or not is_measured(values):
            return values
        bits = values.contiguous().view(torch.int16)
        # Two factors of one shape must not move alike.
        generator = torch.Generator(values.device).manual_seed(self.seed + abs(int(bits.sum())))
        drawn = torch.randint(0, 24, values.shape, generator=generator, device=values.device, dtype=torch.uint8)
        step = round(self.precision.epsilon / Precision.of(values.dtype).epsilon)
        steps = step * ((drawn == 0).to(torch.int16) - (drawn == 1).to(torch.int16))
        moved = (bits + steps).view(values.dtype)
        return torch.where((values != 0) & moved.isfinite(), moved, values)


def find(
    output: torch.Tensor,
    expected: torch.Tensor,
    oracle: torch.Tensor,
    precision: Precision,
    changed: Callable[[Change], torch.Tensor | None],
    terms: int,
    composite: bool = False,
) -> Coarse | None:
    """Returns how coarsely an output of float32 or a half type was computed; None if `precision` explains its error.

    `expected` is the reference's output and `oracle` the right answer in float64. `changed` returns the right answer
    for changed inputs and weights, or None if it cannot be computed. `terms` is an upper limit for the products of one
    sum. `composite` says that the reference calls operators that may be composed of others (ROUNDINGS). The answer for
    changed inputs is computed only if the error is larger than that of a float32 sum.
    """
    size, largest_factor = _norm(oracle), FACTOR * precision.epsilon
    if output.dtype in HALVES:
        composed = math.sqrt(ROUNDINGS) * ROUNDING * precision.epsilon if composite else 0.0
        line, least = LINE, max(LEAST_ERROR, terms * ERROR_PER_TERM, composed)
        (error, certain), (reference, _) = measured(output, oracle), measured(expected, oracle)
    else:
        line, least = LINE_IN_FLOAT32, LEAST_ERROR_IN_FLOAT32
        error, reference = (_without_factor(each, oracle, largest_factor) for each in (output, expected))
        certain = error
    if certain <= max(REFERENCE * reference, size * least):
        return None
    answer = changed(Dither(precision, _SEED))
    effect = 0.0 if answer is None else _norm(answer, oracle)
    if not effect or certain <= line * effect:
        return None
    return Coarse(error / size, reference / size, 1 - math.log2(precision.epsilon * error / effect))


def _without_factor(output: torch.Tensor, oracle: torch.Tensor, largest: float) -> float:
    """Returns the Frobenius norm of an output's error, less a multiple of the right answer of at most `largest`."""
    error, along, size = 0.0, 0.0, 0.0
    for parts in pieces(output, oracle):
        out, true = finite(*(part.double() for part in parts))
        off = out - true
        error += float(off.square().sum())
        along += float((off * true).sum())
        size += float(true.square().sum())
    factor = max(-largest, min(largest, along / (size or 1.0)))
    return math.sqrt(max(0.0, error - 2 * factor * along + factor**2 * size))


def measured(output: torch.Tensor, oracle: torch.Tensor) -> tuple[float, float]:
    """Returns the Frobenius norm of an output's error before its last rounding, and what it is at least.

    Let x be the right answer, r(x) its rounding, and e an error that does not depend on the last bits of x. The mean of
    (r(x + e) - x)^2 - (r(x) - x)^2 is then e^2. Only elements with r(x + e) unlike r(x) count, so their number gives
    the standard deviation. A kernel may round toward zero, which is to nearest with respect to the middle of two
    numbers. The smaller of the two estimates is returned.
    """
    sums = torch.zeros(2, 2, dtype=torch.float64)
    for parts in pieces(output, oracle):
        out, true = finite(*parts)
        near = true.to(out.dtype)
        zero = _toward_zero(near, true)
        for row, (got, right) in enumerate(((out.double(), near.double()), (_middle(out, true), _middle(zero, true)))):
            squares = (got - true).square() - (right - true).square()
            counts = squares.isfinite() & (got != right)
            sums[row] += torch.stack([squares[counts].sum(), counts.sum().double()]).cpu()
    estimates = []
    for square, count in sums.tolist():
        square = max(square, 0.0)
        least = square * max(0.0, 1 - DEVIATIONS / math.sqrt(max(count, 1.0)))
        estimates.append((math.sqrt(square), math.sqrt(least)))
    return min(estimates)


def _toward_zero(nearest: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """Returns `true` rounded toward zero, given its rounding to the nearest number of a half type."""
    too_large = nearest.double().abs() > true.abs()
    return (nearest.contiguous().view(torch.int16) - too_large.to(torch.int16)).view(nearest.dtype)


def _middle(values: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """Returns the middles, in float64, between numbers of a half type and the next numbers away from zero."""
    further = (values.contiguous().view(torch.int16) + 1).view(values.dtype).double()
    return torch.where(values == 0, true.sign() * further, (values.double() + further) / 2)


def _norm(values: torch.Tensor, minus: torch.Tensor | None = None) -> float:
    """Returns the Frobenius norm of `values`, less `minus`, of the elements that are finite."""
    total = 0.0
    for parts in pieces(*([values] if minus is None else [values, minus])):
        kept: Sequence[torch.Tensor] = finite(*(part.double() for part in parts))
        total += float((kept[0] if minus is None else kept[0] - kept[1]).square().sum())
    return math.sqrt(total)
