"""Finds out whether the checks of a problem can tell a right kernel from one that does not compute the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from kernel_harness.checking.cases import Case, Reference
from kernel_harness.checking.elementwise import chunks, finite, measure
from kernel_harness.checking.verify import WRONG_NORM, Expectation, status
from kernel_harness.core.precision import is_inexact
from kernel_harness.core.status import Status

# A wrong answer counts as accepted if its error, divided by this number, is accepted. Answers to other inputs differ,
# so a kernel may pass with one although the one that was tried has failed by little.
_MARGIN = 4
_PIECE = 1 << 26  # elements

# Makes a wrong answer from the right one and from the answer to other inputs.
_Guess = Callable[[Expectation, Sequence[torch.Tensor]], Sequence[torch.Tensor]]


def remark(reference: Reference, cases: Sequence[Case]) -> str:
    """Returns a remark on wrong answers that the checks of a problem accept; an empty text if there is none to make.

    The function gives three wrong answers to the checks of each distribution at the timed shape: zeros, the answer to
    other inputs, and a constant, the mean of the answer to other inputs. The remark names each wrong answer that passes
    all of these checks after its errors were divided by _MARGIN. It also says if the reference's relative error against
    float64 is above WRONG_NORM. Raises torch.OutOfMemoryError if the device has too little memory for the answers.
    """
    timed = [case for case in cases if case.timed_shape and not case.random_parameters]
    timed = [case for case in timed if not case.optional or reference.works(case)]
    timed = [case for case in timed if reference.decides(reference.expectation(case)[1])]
    passing = _passing(reference, timed) if timed else {}
    found = []
    if passing:
        found.append(f"Remark: the checks of this problem cannot tell a right kernel from {' or '.join(passing)}.")
    error = max((_error_of_reference(reference.expectation(case)[1]) for case in timed), default=0.0)
    if error > WRONG_NORM:
        found.append(f"Remark: the reference itself has a relative error of {error:.2g} against float64.")
    return " ".join(found)


def _passing(reference: Reference, cases: Sequence[Case]) -> dict[str, _Guess]:
    passing = _GUESSES
    for case in cases:
        passing = _passing_in(case, reference, passing)
        if not passing:
            break
    return passing


def _passing_in(case: Case, reference: Reference, guesses: Mapping[str, _Guess]) -> dict[str, _Guess]:
    others = reference.answer_to_others(case)  # first, because it needs more memory than the right answer takes
    # The search for rounded inputs names a number format, and a guess has none.
    expectation = replace(reference.expectation(case)[1], rounded=None)
    return {n: guess for n, guess in guesses.items() if _accepted(guess(expectation, others), expectation)}


def _accepted(outputs: Sequence[torch.Tensor], expectation: Expectation) -> bool:
    """Returns whether the checks accept wrong outputs after their errors (not of integers) were divided by _MARGIN."""
    if [o.shape for o in outputs] == [e.shape for e in expectation.expected]:
        outputs = [_nearer(*pair) for pair in zip(outputs, expectation.expected, strict=True)]
    return status(outputs, expectation) is Status.PASSED


def _nearer(output: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    if not is_inexact(output.dtype):
        return output.to(expected.device)
    result = torch.empty_like(expected, memory_format=torch.contiguous_format)
    # In pieces, because the outputs may take most of the device's memory.
    for into, out, want in zip(*(each.reshape(-1).split(_PIECE) for each in (result, output, expected)), strict=True):
        far = out.to(want.device)
        nearer = want + ((far - want) / _MARGIN).to(out.dtype)
        into.copy_(torch.where(nearer.isfinite(), nearer, far))
    return result


def _zeros(expectation: Expectation, others: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    return [each.new_zeros(()).expand(each.shape) for each in expectation.expected]


def _means(expectation: Expectation, others: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    # The mean of this very answer would be the answer itself if that is a single number.
    pairs = zip(expectation.expected, others, strict=True)
    return [each.new_full((), _mean(other, each.device)).expand(each.shape) for each, other in pairs]


def _mean(tensor: torch.Tensor, device: torch.device) -> complex | float:
    """Returns the mean of the finite elements (0 for none), computed on `device`, rounded for integers and booleans."""
    count, total = 0, torch.zeros((), dtype=torch.complex128)
    for piece in tensor.reshape(-1).split(_PIECE):
        for part in chunks(piece.to(device)):
            (numbers,) = finite(*part)
            count, total = count + numbers.numel(), total + numbers.sum().cpu()
    mean: complex | float = (total if tensor.is_complex() else total.real).item() / max(1, count)
    return mean if is_inexact(tensor.dtype) or isinstance(mean, complex) else round(mean)


def _others(expectation: Expectation, others: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    return others


_GUESSES: dict[str, _Guess] = {
    "one that returns zeros": _zeros,
    "one that returns a constant": _means,
    "one that returns the answer to other inputs": _others,
}


def _error_of_reference(expectation: Expectation) -> float:
    if expectation.oracle is None:
        return 0.0
    errors = (measure(e, e, o).relative for e, o in zip(expectation.expected, expectation.oracle, strict=True))
    return max((error for error in errors if error is not None), default=0.0)
