"""Finds the mistake behind wrong values: runs the reference with this mistake and compares its answer with the output.

The mistakes are an input or a parameter that is left out or read with swapped indices, a mask that is read the other
way round, the mirrored kernel of a convolution, two inputs that are exchanged, a number that is not used, another
formula for an operation (`formulas`), and a sum whose loop leaves out terms or adds terms twice. A mistake is named
only if each element of the output is right or is what the mistake gives. It changes no verdict but one: another formula
that gives the output in full precision is WRONG_VALUES, where the size of its error is that of a coarse format.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain, combinations, islice, product

import torch

from kernel_harness.checking import summed
from kernel_harness.checking.cases import Case, Reference
from kernel_harness.checking.compared import Expectation
from kernel_harness.checking.formulas import FORMULAS, INVERTED_MASKS, Formula
from kernel_harness.checking.patterns import Pattern, rearranged
from kernel_harness.checking.replay import Replay, Source
from kernel_harness.checking.verify import Check, status
from kernel_harness.checking.wrong_elements import Wrong
from kernel_harness.core.phases import phase
from kernel_harness.core.status import Status

_LOG = logging.getLogger(__name__)

LEAST_DIFFERENT = 8
"""The least number of different wrong values that a mistake must give. Fewer values could agree by chance."""
MOST_ELEMENTS = 1 << 26
"""The largest number of elements of inputs and outputs together with which mistakes are tried."""
LEAST_SHOWN = 256
"""An output of fewer elements shows few mistakes: a sum needs more elements than terms."""
# The largest number of swaps and exchanges that are tried.
_MOST_SWAPS = 40


@dataclass(frozen=True)
class _Swap:
    """A mistake that replaces inputs or parameters: `changed` maps indices in `Replay.sources` to the new tensors.

    `how` and `advice` are those of `Pattern.of_answer`.
    """

    how: str
    advice: str
    changed: Mapping[int, torch.Tensor]


def _left_out_words(name: str, value: str) -> tuple[str, str]:
    """Returns the arguments of `Pattern.of_answer` where `value` takes the place of `name`."""
    reads = f"check that forward gets {name} and passes it to the kernel, and that the kernel reads it"
    return f"with {value} in place of {name}", reads


def find(
    outputs: Sequence[torch.Tensor],
    expectation: Expectation,
    reference: Reference,
    case: Case,
    *,
    only_formulas: bool = False,
) -> Pattern | None:
    """Returns the mistake that `mistake` finds, or None if it finds none or raises another exception than TimeoutError.

    Raises TimeoutError if the reference is too slow for the search.
    """
    try:
        with _one_thread():
            return mistake(outputs, expectation, reference, case, only_formulas=only_formulas)
    except TimeoutError:
        raise
    except Exception as error:
        _LOG.info("%s: no mistake was looked for: %s: %s", case.name, type(error).__name__, error)
        return None


def shows_little(outputs: Sequence[torch.Tensor], reference: Reference, case: Case) -> bool:
    """Returns whether `find` may miss the mistake at this shape, so that a search at other shapes is useful.

    That is so if the outputs together have fewer than LEAST_SHOWN elements, because few elements do not tell mistakes
    apart. It is also so if a dimension of an input has more than `summed.MOST_INDICES` indices, because sums over such
    a dimension are not examined.
    """
    longest = max((n for t in reference.inputs(case).tensors for n in t.shape), default=0)
    return sum(o.numel() for o in outputs) < LEAST_SHOWN or longest > summed.MOST_INDICES


@phase("explanations")
def with_formula(
    check: Check, outputs: Sequence[torch.Tensor], expectation: Expectation, reference: Reference, case: Case
) -> Check:
    """Returns a check with the status REDUCED_PRECISION; with WRONG_VALUES if another formula gives the outputs.

    Another formula explains an error of the size of a coarse number format better than this format.
    """
    try:
        pattern = find(outputs, expectation, reference, case, only_formulas=True)
    except TimeoutError as error:  # a slow reference: the verdict stands
        _LOG.info("%s: no formula was looked for: %s", case.name, error)
        return check
    if pattern is None:
        return check
    text = f"The relative error is {check.relative_error:.2g}. {pattern.text}"
    return replace(check, status=Status.WRONG_VALUES, detail=text, advice=pattern.advice, precision=None)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Returns a context in which torch computes with one thread on the CPU. At its end it restores the number.

    Hundreds of small computations follow. Beside other processes, each wait of one thread for another may take longer
    than the computation: such a search took 4 s with two threads and 0.2 s with one.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def mistake(
    outputs: Sequence[torch.Tensor],
    expectation: Expectation,
    reference: Reference,
    case: Case,
    *,
    only_formulas: bool = False,
) -> Pattern | None:
    """Returns a description of the mistake that gives the wrong `outputs`, or None if no known mistake does.

    Also returns None if inputs and outputs have more than MOST_ELEMENTS elements together, or are not `_searchable`. If
    `only_formulas`, only other formulas are tried: they alone can have an error as small as that of a coarse number
    format. Raises TimeoutError if the reference takes too long, and the exceptions of a reference that cannot run with
    changed inputs.
    """
    packed = reference.inputs(case)
    if sum(t.numel() for t in (*packed.tensors, *outputs)) > MOST_ELEMENTS:
        return None
    got = [o.to(e.device) for o, e in zip(outputs, expectation.expected, strict=True)]
    if not _searchable(got, expectation):
        return None
    replay = Replay(reference.at(case), packed, reference.device)
    others = () if only_formulas else chain(_by_changes(replay), _by_formulas(replay, INVERTED_MASKS))
    answers = chain(_by_formulas(replay, FORMULAS), others)
    # What a coarse format gives is near any answer that is near the right one.
    kinds = (Status.PASSED,) if only_formulas else (Status.PASSED, Status.REDUCED_PRECISION)
    found = next((pattern for pattern, answer in answers if _gives(answer, got, expectation, kinds)), None)
    if found or only_formulas:
        return found
    return next((p for p, answer in summed.mistakes(replay, got) if _gives(answer, got, expectation, kinds)), None)


def _searchable(got: Sequence[torch.Tensor], expectation: Expectation) -> bool:
    """Returns whether a search may find the mistake in the outputs `got`.

    That needs an oracle, outputs of finite floating-point numbers, and at least LEAST_DIFFERENT different wrong values.
    The right values must not be in the wrong places (`patterns.rearranged`).
    """
    if expectation.oracle is None or not all(o.is_floating_point() and o.isfinite().all() for o in got):
        return False
    if sum(o[o != e].unique().numel() for o, e in zip(got, expectation.expected, strict=True)) < LEAST_DIFFERENT:
        return False
    return not any(rearranged(Wrong(o, e, o != e)) for o, e in zip(got, expectation.expected, strict=True))


def _by_formulas(replay: Replay, formulas: Sequence[Formula]) -> Iterator[tuple[Pattern, list[torch.Tensor]]]:
    """Yields the Pattern of each formula that fits, and the reference's outputs in float64 with this formula."""
    for formula in replay.fitting(formulas):
        with suppress(RuntimeError, IndexError):  # the result of another formula may not suit what follows
            yield Pattern.of_answer(formula.how, formula.advice), replay.outputs(formula=formula)


def _by_changes(replay: Replay) -> Iterator[tuple[Pattern, list[torch.Tensor]]]:
    """Yields the Pattern of each change of inputs or parameters, and the reference's outputs in float64 after it.

    A change leaves out, misreads or exchanges them. Raises TimeoutError if the reference is too slow for the search.
    """
    sources = replay.sources
    inputs = [i for i, source in enumerate(sources) if not source.is_parameter]
    parameters = [i for i, source in enumerate(sources) if source.is_parameter]
    for (at, name), value in product(replay.scalars.items(), (1.0, 0.0)):
        yield Pattern.of_answer(*_left_out_words(name, f"{value:g}")), replay.outputs(scalar=(at, value))
    for swap in chain(_left_out(sources, inputs), _transposed(sources, inputs, 1)):
        with suppress(RuntimeError, IndexError):  # such an index, for example, may be out of range
            yield Pattern.of_answer(swap.how, swap.advice), replay.outputs(swap.changed)
    # In a network that is too slow, a mistake could be found in the first few of its hundreds of parameters only.
    if not replay.affords(2 * len(parameters)):
        raise TimeoutError(
            f"the reference is too slow for a search that has to change each of its {len(parameters)} parameters and "
            "run it again"
        )
    first = chain(
        _left_out(sources, parameters), _transposed(sources, parameters, 1), _of_convolutions(sources, parameters)
    )
    more = chain(_exchanged(sources), _transposed(sources, [*inputs, *parameters], 2))
    for swap in islice(chain(first, more), _MOST_SWAPS):
        yield Pattern.of_answer(swap.how, swap.advice), replay.outputs(swap.changed)


def _gives(
    answer: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], expectation: Expectation, kinds: Collection[Status]
) -> bool:
    """Returns whether each element of the outputs is, within the tolerance, right or that of `answer`, in float64.

    At least LEAST_DIFFERENT different values must be much nearer to `answer` than to the right answer. The outputs are
    compared with a mixture: for each element, the nearer of these two answers. The status of this comparison must be in
    `kinds`.
    """
    assert expectation.oracle is not None
    if [a.shape for a in answer] != [o.shape for o in outputs] or not all(a.isfinite().all() for a in answer):
        return False
    mixed, different = list[torch.Tensor](), 0
    for got, wrong, oracle in zip(outputs, answer, expectation.oracle, strict=True):
        right = oracle.to(got.device)
        from_wrong, from_right, apart = (got - wrong).abs(), (got - right).abs(), (wrong - right).abs()
        mixed.append(torch.where(from_wrong < from_right, wrong, right))
        clear = (10 * from_wrong < from_right) & (apart > 0.01 * apart.max())
        different += got[clear].unique().numel()
    if different < LEAST_DIFFERENT:
        return False
    expected = tuple(m.to(o.dtype) for m, o in zip(mixed, outputs, strict=True))
    compared = replace(expectation, expected=expected, oracle=tuple(mixed), rounded=None)
    return status(outputs, compared) in kinds


def _left_out(sources: Sequence[Source], of: Sequence[int]) -> Iterator[_Swap]:
    """Yields mistakes that leave out one source, such as a bias: 0, or True, replaces it. `of` has the indices."""
    for i in of:
        name, tensor = sources[i].name, sources[i].tensor
        is_bool = tensor.dtype is torch.bool
        yield _Swap(*_left_out_words(name, "False" if is_bool else "0"), {i: torch.zeros_like(tensor)})
        if is_bool:
            yield _Swap(*_left_out_words(name, "True"), {i: torch.ones_like(tensor)})
            yield _Swap(
                f"with {name} read the other way round",
                f"check what the kernel does where {name} is True, and where it is False",
                {i: ~tensor},
            )


def _transposed(sources: Sequence[Source], of: Sequence[int], count: int) -> Iterator[_Swap]:
    """Yields mistakes that read `count` sources, with indices from `of`, with the last two indices swapped."""
    able = [i for i in of if _is_matrix(sources[i])]
    for chosen in combinations(able, count):
        names = [sources[i].name for i in chosen]
        which = "its last two indices" if count == 1 else "the last two indices of each"
        yield _Swap(
            f"for {' and '.join(names)} read with {which} swapped",
            f"check the address of the load: {'; '.join(_address(sources[i]) for i in chosen)}",
            {i: _misread(sources[i].tensor) for i in chosen},
        )


def _is_matrix(source: Source) -> bool:
    return source.row_major and source.tensor.ndim >= 2 and min(source.tensor.shape[-2:]) > 1


def _address(source: Source) -> str:
    *batch, rows, columns = source.tensor.shape
    element = "element [i, j] of each matrix" if batch else "element [i, j]"
    return f"{element} of {source.name} is at i * {columns} + j, not at j * {rows} + i"


def _misread(tensor: torch.Tensor) -> torch.Tensor:
    """Returns what a kernel reads that takes element [i, j] of each matrix from address j * rows + i.

    The right address is i * columns + j. The result has the shape of `tensor`.
    """
    *batch, rows, columns = tensor.shape
    return tensor.reshape(*batch, columns, rows).mT.clone()


def _of_convolutions(sources: Sequence[Source], of: Sequence[int]) -> Iterator[_Swap]:
    """Yields mistakes that read the weights of a convolution with swapped channels, or each kernel mirrored."""
    for i in of:
        name, tensor = sources[i].name, sources[i].tensor
        if not sources[i].row_major or tensor.ndim < 3:
            continue
        first, second, *kernel = tensor.shape
        if min(first, second) > 1:
            yield _Swap(
                f"for {name} read with its first two indices swapped",
                f"check the address of the load: the kernel [i, j] of {name} begins at (i * {second} + j) * "
                f"{math.prod(kernel)}",
                {i: tensor.reshape(second, first, *kernel).transpose(0, 1).clone()},
            )
        if max(kernel) > 1:
            yield _Swap(
                f"with each kernel of {name} mirrored",
                "check the signs in the indices: a convolution of torch multiplies input [y + ky, x + kx] by "
                "weight [ky, kx], and a transposed one adds to output [y + ky, x + kx]",
                {i: tensor.flip(tuple(range(2, tensor.ndim)))},
            )


def _exchanged(sources: Sequence[Source]) -> Iterator[_Swap]:
    """Yields mistakes that exchange two sources of equal shape."""
    for i, j in combinations(range(len(sources)), 2):
        one, other = sources[i], sources[j]
        if one.tensor.shape == other.tensor.shape and one.tensor.dtype == other.tensor.dtype:
            yield _Swap(
                f"with {one.name} and {other.name} exchanged",
                f"check the order of the arguments, from forward to the kernel: {one.name} and {other.name} have "
                "the same shape and are not interchangeable",
                {i: other.tensor.clone(), j: one.tensor.clone()},
            )
