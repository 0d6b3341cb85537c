"""The limits for the error of each element of an output: those of the problem's own inputs, and those of others.

An element is wrong if it exceeds all limits for its output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch

from kernel_harness.checking import ties
from kernel_harness.checking.compared import NEARNESS, TYPICAL_SHARE, Compared, jittered
from kernel_harness.checking.elementwise import (
    Limit,
    all_finite,
    count,
    error_up_to,
    exceeds,
    largest_error,
    typical,
    up_to,
)
from kernel_harness.core.precision import EXACT, REDUCED_TOLERANCE
from kernel_harness.problem.distributions import OWN

LARGE = 64
"""An element of more than LARGE times the median magnitude is judged by the reference's errors at all elements."""

AS_GOOD = 2.0
"""An element whose error is at most AS_GOOD times that of the reference's element is right."""

TAIL = 0.25
"""Elements at which the reference's error exceeds this share of the limits are ill-conditioned (`is_tail`)."""

UNDECIDED_SHARE, UNDECIDED_RUNS = 0.1, 24
"""At most UNDECIDED_SHARE of an output's whole numbers may be undecided (`_exact_limits`).

The reference runs up to UNDECIDED_RUNS times. Each time its inputs change by about JITTER of themselves, which is 64
times the rounding of float32. So a number that rounding errors can change does change in about half of these runs.
"""

SCALE_SHARE = 1e-3
"""The default absolute tolerance is at most this share of the output's RMS.

Without this limit, any small numbers would be accepted where the right answer consists of small numbers.
"""

ELEMENT_LIMIT = 1e-4
"""The largest allowed error of an element, relative to the magnitude that `Expectation.scale` gives for the element."""

Limits = Callable[[Compared, int], Iterator[Limit]]
"""A function that yields the limits for one output, which has an index."""


def usual_limits(compared: Compared, i: int) -> Iterator[Limit]:
    """Yields the limits for output i that belong to the distribution of the inputs.

    An element is right if it meets one of them. Outputs of integers or booleans have `_exact_limits`. Few sums of many
    numbers have narrower limits, a relative error against the oracle and `_nearness`, unless they are ill-conditioned.
    """
    if not compared.is_inexact(i):
        yield from _exact_limits(compared, i)
        return
    if (share := compared.sum_error(i)) is not None:
        yield Limit(compared.truths[i], rtol=share)
        yield from _nearness(compared, i)
        if compared.is_well_conditioned(i):
            return
    yield from (_own_limits if compared.expectation.distribution == OWN else _other_limits)(compared, i)


def _own_limits(compared: Compared, i: int) -> Iterator[Limit]:
    """Yields the limits for output i with the problem's own inputs.

    The first limit is the tolerance around the reference's output. A default `atol` follows the magnitude of the output
    (SCALE_SHARE, TYPICAL_SHARE), and `rtol` and `atol` are increased where a format coarser than the output's applies
    (`applied`). The next limits are nearness to the oracle (`_nearness`). For inputs with zero mean, the last is the
    limit for other distributions (`scaled_limit`): outputs can then be arbitrarily near zero, where an honest float32
    sum does not meet a relative tolerance.
    """
    expectation, tolerance = compared.expectation, compared.expectation.tolerance
    rtol, atol = tolerance.rtol, tolerance.atol
    if compared.applied(i).epsilon > compared.native(i).epsilon:
        rtol, atol = max(rtol, REDUCED_TOLERANCE), max(atol, REDUCED_TOLERANCE)
    if tolerance.follows_scale and compared.errors[i].rms > 0 and not compared.is_noise(i):
        atol = min(atol, max(SCALE_SHARE, 8 * compared.applied(i).epsilon) * compared.errors[i].rms)
        if compared.native(i).epsilon < ELEMENT_LIMIT:
            atol = max(atol, TYPICAL_SHARE * typical(compared.truths[i]))
    yield Limit(expectation.expected[i], rtol, atol)
    yield from _nearness(compared, i)
    if expectation.zero_mean and expectation.oracle is not None:
        yield scaled_limit(compared, i, compared.applied(i).epsilon)


def _other_limits(compared: Compared, i: int) -> Iterator[Limit]:
    """Yields the limits for output i with other inputs than the problem's own: `scaled_limit` and `_nearness`.

    An output that may be all rounding error (`is_noise`) has also the tolerance around the reference's output as a
    limit. For the distribution "integers", the output must equal the oracle (the reference's output in float64) if the
    reference itself does, unless a coarser format applies (`applied`).
    """
    expectation = compared.expectation
    reference_exact = expectation.oracle is not None and compared.errors[i].reference_relative == 0
    if expectation.distribution == "integers" and reference_exact and compared.applied(i) is compared.native(i):
        yield Limit(compared.truths[i])
    else:
        yield scaled_limit(compared, i, compared.applied(i).epsilon)
        yield from _nearness(compared, i)
        if compared.is_noise(i):
            yield Limit(expectation.expected[i], expectation.tolerance.rtol, expectation.tolerance.atol)


def _exact_limits(compared: Compared, i: int) -> Iterator[Limit]:
    """Yields the limits for an output of integers or booleans: each element must equal the reference's.

    The index of a number in a sort, a top-k or an extremum may instead be that of an equal number (`ties`). If the
    output follows from rounded numbers, as the index of a maximum does, the last bits decide a few elements. If at most
    UNDECIDED_SHARE of the elements differ, each of them may instead equal the oracle's, or an oracle's for slightly
    changed inputs. That needs the function `Expectation.rounded`.
    """
    expected, rounded = compared.expectation.expected[i], compared.expectation.rounded
    yield Limit(expected)
    differing = count(exceeds(*compared.pair(i), Limit(expected)))
    changed = partial(compared.changed, i)
    alike = ties.alike(*compared.pair(i), compared.expectation.inputs, changed) if differing else None
    if alike is not None:
        expected = compared.outputs[i].where(alike, expected)
        yield Limit(expected)
        differing = count(exceeds(compared.outputs[i], expected, Limit(expected)))
    if rounded is None or differing > UNDECIDED_SHARE * expected.numel():
        return
    if compared.expectation.oracle is not None:
        yield Limit(compared.truths[i])
    for seed in range(UNDECIDED_RUNS):
        answers = rounded(partial(jittered, seed))
        if not answers or answers[i].shape != expected.shape or answers[i].dtype is not expected.dtype:
            return
        yield Limit(answers[i])


def _nearness(compared: Compared, i: int) -> Iterator[Limit]:
    """Yields the limits that allow every element of output i NEARNESS times the RMS of the reference's error.

    Where the answers reach over many powers of ten, the errors of the largest elements must not excuse the others. So
    for elements up to LARGE times the median magnitude, only the reference's errors at such elements count.
    An element may also have AS_GOOD times the reference's own error there: where one number of the inputs is far larger
    than all others, its own element can have all of the reference's error.
    """
    truth, error_rms = compared.truths[i], compared.errors[i].reference_error_rms
    large = LARGE * typical(truth)
    usual_rms = error_up_to(large, compared.expectation.expected[i], truth)
    if usual_rms is None:
        yield Limit(truth, atol=NEARNESS * error_rms)
    else:
        yield Limit(truth, atol=NEARNESS * min(usual_rms, error_rms))
        yield Limit(truth, atol=NEARNESS * error_rms, above=large)
    if compared.expectation.oracle is not None:
        own = (compared.expectation.expected[i].to(truth) - truth).abs()
        yield Limit(truth, factor=AS_GOOD, scale=own.nan_to_num(0.0, 0.0))


def repeat_limits(compared: Compared, i: int) -> Iterator[Limit]:
    """Yields the limit for a second call with equal inputs: the problem's tolerance around the first answer.

    The tolerance is increased by `rtol` times the RMS of the first answer, for elements near zero. Integers and
    booleans must be equal.
    """
    tolerance = compared.expectation.tolerance if compared.is_inexact(i) else EXACT
    yield Limit(compared.truths[i], tolerance.rtol, tolerance.atol, tolerance.rtol, compared.errors[i].rms)


def scaled_limit(compared: Compared, i: int, epsilon: float) -> Limit:
    """Returns the limit for the errors of output i if a candidate computes in a number format with this `epsilon`.

    The limit is f * magnitude + e * |truth|. The magnitude is that of `Expectation.scale`. f is 1e-4. If `epsilon` is
    at least 1e-4, f is 1e-4 + 2 * epsilon, for the rounding of two inputs. e is the larger of this epsilon and that of
    the output's dtype, for the rounding of the output. The truth is the right answer. Without `Expectation.scale`, the
    magnitude is its RMS, and e is at least 1e-4.
    """
    finfo = torch.finfo(compared.outputs[i].dtype)
    factor = ELEMENT_LIMIT if epsilon < ELEMENT_LIMIT else ELEMENT_LIMIT + 2 * epsilon
    scales, rtol = compared.expectation.scale, max(finfo.eps, epsilon)
    if scales is None:  # the RMS says nothing of elements that are much larger
        return Limit(compared.truths[i], max(rtol, ELEMENT_LIMIT), finfo.tiny, factor, compared.errors[i].rms)
    return Limit(compared.truths[i], rtol, finfo.tiny, factor, scales[i])


def is_tail(compared: Compared, i: int, limits: Limits, wrong: torch.Tensor) -> bool:
    """Returns whether the errors at the elements `wrong` are those of ill-conditioned elements, as the reference's are.

    GroupNorm over two numbers that are nearly equal multiplies their rounding errors by any factor, so a few elements
    of each float32 computation are far from the oracle, and they need not be the same ones. With such a tail of errors
    that falls as 1/x, the reference has four times as many elements beyond TAIL of the limits as beyond the limits. So
    a candidate may have half as many elements beyond the limits as the reference has beyond TAIL of the limits, with
    errors of at most NEARNESS times the largest of these. The reference's elements that are larger than LARGE times the
    median and than those at `wrong` do not count, because their errors are larger too. Returns False without an oracle,
    and unless the output has only finite floating-point or complex numbers.
    """
    got, want = compared.pair(i)
    if not compared.is_inexact(i) or compared.expectation.oracle is None or not all_finite(got):
        return False
    like = torch.ones_like(wrong)
    for limit in limits(compared, i):
        if limit.truth is not want:
            parts = {name: TAIL * getattr(limit, name) for name in ("rtol", "atol", "factor")}
            like &= exceeds(want, want, replace(limit, **parts)).to(like.device)
    truth = compared.truths[i]
    largest = max(LARGE * typical(truth), largest_error(truth, torch.zeros_like(truth), wrong))
    like &= up_to(largest, truth).to(like.device)
    if like.all() or 2 * count(wrong) > count(like):
        return False
    return largest_error(got, truth, wrong) <= NEARNESS * largest_error(want, truth, like)


def beyond(compared: Compared, i: int, limits: Limits) -> torch.Tensor:
    """Returns a boolean tensor that is True where output i exceeds every limit that `limits` yields for it."""
    wrong = torch.ones_like(compared.outputs[i], dtype=torch.bool)
    for limit in limits(compared, i):
        wrong &= exceeds(*compared.pair(i), limit)
        if not wrong.any():
            break
    return wrong
