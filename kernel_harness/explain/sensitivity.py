"""Finds out whether the checks of a problem can tell a right kernel from one that does not compute the answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace

import torch

from kernel_harness.checking.cases import Case, Reference
from kernel_harness.checking.compared import Expectation
from kernel_harness.checking.elementwise import chunks, finite, measure, typical
from kernel_harness.checking.plan import derived_seed
from kernel_harness.checking.reference_model import on_host
from kernel_harness.checking.verify import WRONG_NORM, status
from kernel_harness.core.phases import phase
from kernel_harness.core.precision import is_inexact
from kernel_harness.core.remark import Remark, RemarkKind
from kernel_harness.core.status import Status
from kernel_harness.device import device_memory
from kernel_harness.ipc import tensors
from kernel_harness.ipc.packed import Packed

# A wrong answer counts as accepted if its error, divided by this number, is accepted. Answers to other inputs differ,
# so a kernel may pass with one although the one that was tried has failed by little.
_MARGIN = 4
_PIECE = 1 << 26  # elements
# Outputs in float64 depend on the order of the inputs if they differ by more than this: rounding changes them by less.
_REORDERED = 1e-9
# The memory that one more wrong answer and its comparison take, as a multiple of the outputs.
_FURTHER = 3

# Makes a wrong answer from the right one and from the answer to other inputs.
_Guess = Callable[[Expectation, Sequence[torch.Tensor]], Sequence[torch.Tensor]]


@phase("sensitivity")
def remarks(reference: Reference, cases: Sequence[Case]) -> list[Remark]:
    """Returns remarks on wrong answers that the checks of a problem accept.

    The function gives five wrong answers to the checks of each distribution at the timed shape: zeros, the answer to
    other inputs, a constant, which is the mean of the answer to other inputs, the right answer with zeros for the
    smaller half of its elements, and the answer to the same inputs in another order. A remark names each wrong answer
    that passes all of these checks after its errors were divided by _MARGIN. It also names inputs that are equal in all
    of these checks, and says if the reference's relative error against float64 is above WRONG_NORM. Raises
    torch.OutOfMemoryError if the device has too little memory for the answers.
    """
    timed = [case for case in cases if case.timed_shape and not case.random_parameters]
    timed = [case for case in timed if not case.optional or reference.works(case)]
    timed = [case for case in timed if reference.decides(reference.expectation(case)[1])]
    passing = _passing(reference, timed) if timed else {}
    if _ZEROS in passing:
        passing.pop(_SOME_ZEROS, None)  # nothing else is to be expected
    wrong = list(passing)
    if timed and _OTHERS not in passing and _accepts_another_order(reference, timed):
        wrong.append("one that reads its inputs in another order")
    found = _on_constant_inputs(reference, timed)
    if wrong:
        found.insert(0, f"the checks of this problem cannot tell a right kernel from {' or '.join(wrong)}.")
    error = max((_error_of_reference(reference.expectation(case)[1]) for case in timed), default=0.0)
    if error > WRONG_NORM:
        found.append(f"the reference itself has a relative error of {error:.2g} against float64.")
    return [Remark(RemarkKind.PROBLEM, text) for text in found]


def _on_constant_inputs(reference: Reference, cases: Sequence[Case]) -> list[str]:
    """Returns the text of a remark, if any, on the inputs that are equal in all of the cases, which have one shape."""
    first = _marks(reference.inputs(cases[0])) if len(cases) > 1 else []
    if len(first) < 2:  # a single input that is always equal is told by the answer to other inputs
        return []
    seen = [first, *(_marks(reference.inputs(case)) for case in cases[1:])]
    constant = [i for i, marks in enumerate(zip(*seen, strict=True), 1) if len(set(marks)) == 1]
    if not constant or len(constant) == len(first):
        return []
    names = reference.at(cases[0]).input_names
    named = " and ".join(f"input {i}" + (f" ({names[i - 1]})" if i <= len(names) else "") for i in constant)
    return [f"{named} had one value in all checks at this size, so a kernel that does not read it would pass."]


def _marks(packed: Packed) -> list[Hashable]:
    """Returns a value for each input that is equal for equal inputs."""
    found: list[Hashable] = []
    for value in tensors.unflatten(packed.structure, packed.tensors):
        structure, held = tensors.flatten(value)
        found.append((repr(structure), *((each.shape, each.dtype, int(tensors.checksum(each))) for each in held)))
    return found


def _passing(reference: Reference, cases: Sequence[Case]) -> dict[str, _Guess]:
    passing = _GUESSES
    for case in cases:
        passing = _passing_in(case, reference, passing)
        if not passing:
            break
    return passing


def _passing_in(case: Case, reference: Reference, guesses: Mapping[str, _Guess]) -> dict[str, _Guess]:
    # First, because this needs more memory than the right answer takes.
    others = _answer(reference, case, _other_inputs(reference, case))
    expectation = _bare(reference.expectation(case)[1])
    return {n: guess for n, guess in guesses.items() if _accepted(guess(expectation, others), expectation)}


def _bare(expectation: Expectation) -> Expectation:
    """Returns the Expectation without what makes `verify` look for the cause of an error, or for equal numbers.

    A guess has no number format, and whole numbers that are not equal to the right ones are no right answer.
    """
    return replace(expectation, rounded=None, inputs=())


def _accepts_another_order(reference: Reference, cases: Sequence[Case]) -> bool:
    """Returns whether the checks of all cases accept the answer to inputs in another order, though it is wrong.

    The mean of a product over a billion random numbers changes by less than the tolerance if one factor is reordered,
    and yet a kernel that does so is wrong. Where the order makes no difference in float64, it is right.
    """
    try:
        accepted = all(_accepts_reordered(reference, case) for case in cases)
        return accepted and any(_order_matters(reference, case) for case in cases)
    except Exception:  # the inputs may not be valid in another order, and a remark is worth no failure
        return False


def _accepts_reordered(reference: Reference, case: Case) -> bool:
    outputs = _answer(reference, case, _reordered(reference, case))
    return _accepted(outputs, _bare(reference.expectation(case)[1]))


def _order_matters(reference: Reference, case: Case) -> bool:
    """Returns whether the reference's float64 outputs depend on the order of the case's inputs (`_reordered`).

    Returns False if the reference cannot run in float64.
    """
    reordered = _reordered(reference, case)
    answer = reference.expect(reference.at(case), reordered, case.name, case.inputs_from)[1].oracle
    oracle = reference.expectation(case)[1].oracle
    if oracle is None or answer is None:
        return False
    return any((a - b).abs().max() > _REORDERED * a.abs().max() for a, b in zip(oracle, answer, strict=True))


def _other_inputs(reference: Reference, case: Case) -> Packed:
    """Returns inputs of the case's shape and distribution that have another seed."""
    reference.make_room()
    return reference.drawn(reference.at(case), derived_seed(case.seed, "other inputs"), case.inputs_from)


def _reordered(reference: Reference, case: Case) -> Packed:
    """Returns the case's inputs with the elements of each floating-point tensor rolled by a distance of its own."""
    reference.make_room()
    packed = reference.drawn(reference.at(case), case.seed, case.inputs_from)  # their memory is freed one by one
    rng, rolled = random.Random(derived_seed(case.seed, "another order")), list(packed.tensors)
    packed = replace(packed, tensors=())
    for i, tensor in enumerate(rolled):
        if tensor.is_floating_point() and tensor.numel() > 1:
            rolled[i] = tensor.reshape(-1).roll(rng.randrange(1, tensor.numel())).reshape(tensor.shape)
    return replace(packed, tensors=tuple(rolled))


def _answer(reference: Reference, case: Case, packed: Packed) -> Sequence[torch.Tensor]:
    """Returns the reference's outputs, which are in the host's memory if the device is short of memory."""
    problem = reference.at(case)
    outputs = reference.answered(problem, packed).tensors
    return list(map(on_host, outputs)) if reference.is_short(problem) else outputs


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


def _larger_half(expectation: Expectation, others: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Returns the right answer with zeros for those elements whose magnitude is at most the median one.

    An output of whole numbers is all zeros, and so is one whose elements are almost all zeros. All outputs are if a GPU
    has too little memory for further answers.
    """
    expected = expectation.expected
    gpu = next((str(each.device) for each in expected if each.is_cuda), None)
    if gpu and device_memory.usable_bytes(gpu) < _FURTHER * sum(each.nbytes for each in expected):
        return _zeros(expectation, others)
    return [_without_small(each) if is_inexact(each.dtype) else torch.zeros_like(each) for each in expected]


def _without_small(expected: torch.Tensor) -> torch.Tensor:
    if not expected.numel():
        return expected
    least = typical(expected)
    if not least:  # a sample saw zeros only, so the result would be the right answer
        return torch.zeros_like(expected)
    result = torch.empty_like(expected, memory_format=torch.contiguous_format)
    for into, right in zip(*(each.reshape(-1).split(_PIECE) for each in (result, expected)), strict=True):
        into.copy_(right.masked_fill(right.abs() <= least, 0))
    return result


_ZEROS = "one that returns zeros"
_OTHERS = "one that returns the answer to other inputs"
_SOME_ZEROS = "one that returns zeros for the smaller half of the numbers"
_GUESSES: dict[str, _Guess] = {
    _ZEROS: _zeros,
    "one that returns a constant": _means,
    _OTHERS: _others,
    _SOME_ZEROS: _larger_half,
}


def _error_of_reference(expectation: Expectation) -> float:
    if expectation.oracle is None:
        return 0.0
    errors = (measure(e, e, o).relative for e, o in zip(expectation.expected, expectation.oracle, strict=True))
    return max((error for error in errors if error is not None), default=0.0)
