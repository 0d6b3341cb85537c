"""Finds in the errors of an output that the inputs were rounded to a shorter number format, even in small errors.

In a sum of many positive terms, the roundings of the inputs average out. With TF32 the error of the sum is then as
small as that of an honest float32 sum in an unfavourable order, so no limit on its size separates the two
(docs/verdicts.md has the figures). But the error still follows the roundings of the inputs, which the judge knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch

from kernel_harness.checking.elementwise import Errors, chunks, finite
from kernel_harness.core.precision import Change, Precision, Rounding

ROUNDINGS = tuple(Rounding(p, zero) for p in (Precision.TF32, Precision.BFLOAT16) for zero in (False, True))
"""The roundings that are looked for. Those to TF32 also find float16: both formats have a significand of 11 bits."""

MIN_CORRELATION = 0.3
"""An error shows a rounding of the inputs only if its correlation with the effect of this rounding is at least this.

The error of an honest kernel does not follow the inputs' last bits. Its correlation is 0 on average; for 1,024 sums it
was at most 0.08 (docs/verdicts.md). If a kernel rounds only one of two factors, the correlation is 0.7.
"""

SHARES = (0.25, 4.0)
"""An error shows a rounding only if the share of the rounding's effect that it contains is between these two numbers.

An error with less than a quarter of the effect does not come from rounded inputs, however large its correlation is.
"""

TRIALS = 40
DEVIATIONS = 6.0
"""The correlation must be at least DEVIATIONS times as large as by chance, as TRIALS random changes of the inputs show.

Each trial changes every input by as much as the rounding does, but up or down at random. An honest error is correlated
with the effect of the true rounding as much as with these effects. Where outputs depend on each other, as in running
sums or in outer products of few sums, both correlations are large: up to 0.98 was seen for an honest kernel.
"""

SUSPICIOUS = 2.5
"""An output is examined only if its error is larger than this factor times the reference's error.

For most honest kernels, no answer to changed inputs then has to be computed.
"""

# What is left of a square after a subtraction is rounding error of float64 if it is less than this share.
_NOTHING = 1e-9


@dataclass(frozen=True)
class Resemblance:
    """How much the error of an output resembles the effect of a rounding.

    From both, the part that is a multiple of the right answer is first removed. This part is one factor for all
    elements, and has other causes too: tensor cores round each partial sum toward zero. The remaining error and effect
    are compared. `correlation` is the cosine of the angle between them. `share` is the multiple of the effect that is
    nearest to the error; 1 is the whole effect. Both numbers are 0 if nothing is left of the error or of the effect.
    """

    correlation: float
    share: float


@dataclass(frozen=True)
class Trace:
    """A rounding of the inputs that the error of an output shows, and the correlation of the error with its effect."""

    rounding: Rounding
    correlation: float


def find(
    output: torch.Tensor, oracle: torch.Tensor, errors: Errors, changed: Callable[[Change], torch.Tensor | None]
) -> Trace | None:
    """Returns the rounding of the inputs that the error of a float32 output shows, or None if it shows none.

    `oracle` is the right answer in float64. `errors` are those of the output and of the reference. `changed` returns
    the right answer for changed inputs and weights, or None if it cannot be computed. Also returns None if the error is
    at most SUSPICIOUS times the reference's, and for a sum of inputs (`_is_sum_of_inputs`).
    """
    if errors.relative is None or errors.relative <= SUSPICIOUS * (errors.reference_relative or 0.0):
        return None

    def compared(rounding: Rounding) -> Resemblance | None:
        answer = changed(rounding)
        return None if answer is None else resemblance(output, oracle, answer)

    for rounding in ROUNDINGS:
        found = compared(rounding)
        if found and found.correlation >= MIN_CORRELATION and SHARES[0] <= found.share <= SHARES[1]:
            trials = (compared(replace(rounding, signs_seed=seed)) for seed in range(TRIALS))
            if _beyond_chance(found.correlation, trials) and not _is_sum_of_inputs(oracle, changed):
                return Trace(rounding, found.correlation)
    return None


def _beyond_chance(correlation: float, trials: Iterable[Resemblance | None]) -> bool:
    """Returns whether `correlation` is at least DEVIATIONS times the root mean square of those in `trials`.

    `trials` has TRIALS elements; None counts as a correlation of 1. Stops early once the answer is no, because each
    trial costs an answer in float64.
    """
    limit = TRIALS * (correlation / DEVIATIONS) ** 2
    total = 0.0
    for trial in trials:
        total += trial.correlation**2 if trial else 1.0
        if total > limit:
            return False
    return True


def _is_sum_of_inputs(oracle: torch.Tensor, changed: Callable[[Change], torch.Tensor | None]) -> bool:
    """Returns whether doubled inputs and weights double the answer: it then adds inputs, and not products of them.

    A long sum in float32 rounds each input to the last bit of the partial sum. Where this bit is as large as the last
    bit of a shorter format, the error of an honest sum follows the rounding of the inputs. In a simulation, 1,024 sums
    of 16,384 numbers between 0 and 1 had a correlation of 0.39. Units for shorter formats multiply, so they do not
    speed up such a sum.
    """
    answer = changed(lambda values: 2 * values if values.dtype is torch.float32 else values)
    return answer is not None and torch.equal(answer.to(oracle.device), 2 * oracle)


def resemblance(output: torch.Tensor, oracle: torch.Tensor, answer: torch.Tensor) -> Resemblance:
    """Returns how much the error `output - oracle` resembles the effect of a rounding, `answer - oracle`.

    The tensors have one shape, with at least one dimension. Elements that are not finite in all three do not count.
    """
    sums = torch.zeros(6, dtype=torch.float64)
    for parts in chunks(output, oracle, answer):
        out, true, changed = finite(*parts)
        error, effect = out - true, changed - true
        pairs = ((true, true), (error, true), (effect, true), (error, error), (effect, effect), (error, effect))
        sums += torch.stack([torch.dot(x, y) for x, y in pairs]).cpu()
    norm, error_along, effect_along, error_all, effect_all, product = sums.tolist()
    if norm == 0:
        return Resemblance(0.0, 0.0)
    error_rest = error_all - error_along**2 / norm
    effect_rest = effect_all - effect_along**2 / norm
    if error_rest <= _NOTHING * error_all or effect_rest <= _NOTHING * effect_all:
        return Resemblance(0.0, 0.0)
    product -= error_along * effect_along / norm
    return Resemblance(product / math.sqrt(error_rest * effect_rest), product / effect_rest)
