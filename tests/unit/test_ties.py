"""Indices of a sort, a top-k or an extremum: those of equal numbers are as right as the reference's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from kernel_harness.checking import ties
from kernel_harness.checking.compared import Expectation
from kernel_harness.checking.verify import verify
from kernel_harness.core.precision import Change, Tolerance
from kernel_harness.core.status import Status

DIGITS = torch.randint(0, 5, (16, 40), generator=torch.Generator().manual_seed(1)).float()


def backwards(x: Tensor, select: Callable[[Tensor], Tensor], dim: int) -> Tensor:
    """The indices that `select` gives if equal numbers are taken from the end."""
    return x.shape[dim] - 1 - select(x.flip(dim))


KINDS: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "sort": (lambda x: x.sort(dim=1, stable=True).indices, 1),
    "sort of columns, from the largest": (lambda x: x.sort(dim=0, descending=True, stable=True).indices, 0),
    "top-k": (lambda x: x.sort(dim=1, descending=True, stable=True).indices[:, :7], 1),
    "argmax": (lambda x: (x == x.amax(1, keepdim=True)).int().argmax(1), 1),
    "argmin that keeps the dimension": (lambda x: (x == x.amin(0, keepdim=True)).int().argmax(0, keepdim=True), 0),
}


def verdict(got: Tensor, expected: Tensor, x: Tensor) -> Status:
    right = Expectation("x", "own", (expected,), None, None, Tolerance(1e-5, 1e-5), inputs=(x,))
    return verify([got], right).status


@pytest.mark.parametrize("kind", KINDS)
def test_the_index_of_an_equal_number_is_right(kind: str) -> None:
    select, dim = KINDS[kind]
    expected, got = select(DIGITS), backwards(DIGITS, select, dim)
    assert (got != expected).double().mean() > 0.3
    assert verdict(got, expected, DIGITS) is Status.PASSED
    assert verdict(got, expected, torch.zeros(3)) is Status.WRONG_VALUES


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_of_another_number_is_wrong(kind: str) -> None:
    select, dim = KINDS[kind]
    expected, got = select(DIGITS), backwards(DIGITS, select, dim)
    row = DIGITS.select(1 - dim, 0)
    place = (0,) * got.ndim
    got[place] = next(i for i, value in enumerate(row) if value != row[int(expected[place])])
    assert verdict(got, expected, DIGITS) is Status.WRONG_VALUES
    got[place] = DIGITS.shape[dim]
    assert verdict(got, expected, DIGITS) is Status.WRONG_VALUES


def test_an_index_that_occurs_twice_is_wrong() -> None:
    expected = DIGITS.sort(1).indices
    got = expected.clone()
    got[3, 1] = got[3, 0]
    alike = ties.alike(got, expected, (DIGITS,))
    assert alike is not None and not alike[3].any() and alike[:3].all() and alike[4:].all()


@pytest.mark.parametrize("output", [torch.bincount(DIGITS.long().flatten()), DIGITS.long(), DIGITS > 2, DIGITS])
def test_other_outputs_are_no_indices(output: Tensor) -> None:
    assert ties.alike(output, output, (DIGITS,)) is None


def test_a_number_that_is_not_the_extremum_is_no_index_of_one() -> None:
    first = torch.zeros(16, dtype=torch.long)
    assert ties.alike(first, first, (DIGITS,)) is None


def verdict_of(model: Callable[..., Tensor], got: Tensor, *inputs: Tensor) -> Status:
    """The verdict on indices for a model whose answer to changed inputs is known."""

    def changed(change: Change) -> tuple[Tensor, ...]:
        return (model(*map(change, inputs)),)

    right = Expectation(
        "x", "own", (model(*inputs),), None, None, Tolerance(1e-5, 1e-5), inputs=inputs, rounded=changed
    )
    return verify([got], right).status


def masked_argmax(mask: Tensor, scores: Tensor) -> Tensor:
    return scores.masked_fill(mask == 0, -torch.inf).argmax(1)


MASK = torch.ones(40, 40).tril()


@pytest.mark.parametrize("scores", [torch.randn(40, 40, generator=torch.Generator().manual_seed(0)), DIGITS.T @ DIGITS])
def test_an_index_that_a_mask_allows_is_wrong_if_the_scores_contradict_it(scores: Tensor) -> None:
    assert verdict_of(masked_argmax, torch.arange(40), MASK, scores) is Status.WRONG_VALUES
    assert verdict_of(masked_argmax, masked_argmax(MASK, scores), MASK, scores) is Status.PASSED


def test_an_index_of_an_equal_score_that_the_mask_allows_is_right() -> None:
    scores = torch.randint(0, 3, (40, 40), generator=torch.Generator().manual_seed(0)).float()
    last = 39 - scores.flip(1).masked_fill(MASK.flip(1) == 0, -torch.inf).argmax(1)
    assert (last != masked_argmax(MASK, scores)).any()
    assert verdict_of(masked_argmax, last, MASK, scores) is Status.PASSED


@pytest.mark.parametrize("value", [0.0, 2.0])
def test_any_index_of_a_constant_row_is_right_if_other_rows_show_what_the_indices_are(value: float) -> None:
    x = DIGITS.clone()
    x[5] = value
    got = x.argmax(1)
    got[5] = 17
    assert verdict_of(lambda x: x.argmax(1), got, x) is Status.PASSED


def test_constant_rows_alone_say_nothing() -> None:
    ones, scores = torch.ones(16, 40), torch.randn(16, 40, generator=torch.Generator().manual_seed(0))

    def model(ones: Tensor, scores: Tensor) -> Tensor:
        return (scores * scores + ones).argmax(1)

    assert verdict_of(model, torch.zeros(16, dtype=torch.long), ones, scores) is Status.WRONG_VALUES


def test_the_number_of_ones_in_a_row_is_no_index_of_a_zero() -> None:
    lengths = torch.arange(1, 17)
    mask = (torch.arange(40) < lengths[:, None]).float()
    assert verdict_of(lambda m: (m == 1).sum(1), lengths, mask) is Status.PASSED
    assert verdict_of(lambda m: (m == 1).sum(1), lengths + 3, mask) is Status.WRONG_VALUES
    assert verdict_of(lambda m: m.argmin(1), lengths + 3, mask) is Status.PASSED


@pytest.mark.parametrize("kind", KINDS)
def test_indices_of_equal_numbers_are_right_beside_other_inputs(kind: str) -> None:
    select, dim = KINDS[kind]
    got = backwards(DIGITS, select, dim)
    scale = torch.tensor([2.0, 3.0])
    assert verdict_of(lambda x, y: select(x), got, DIGITS, scale) is Status.PASSED
