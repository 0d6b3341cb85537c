"""The explanation of a wrong output, for one mistake at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_harness.checking.patterns import describe
from kernel_harness.checking.wrong_elements import Mismatch, Wrong, first_mismatches

torch.set_num_threads(1)


def answer(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def explained(got: torch.Tensor, expected: torch.Tensor) -> str:
    return describe(Wrong(got, expected, ~torch.isclose(got, expected))).text


def edited(edit: Callable[[torch.Tensor], object], *shape: int) -> str:
    """The explanation of a right output of this shape (67 x 45 by default) after an edit in place."""
    expected = answer(*(shape or (67, 45)))
    got = expected.clone()
    edit(got)
    return explained(got, expected)


def test_all_zeros() -> None:
    assert edited(torch.Tensor.zero_) == "The whole output is zero: did the kernel run, and did it write to the output?"


def test_nan() -> None:
    assert edited(lambda t: t[3, 5].fill_(torch.nan)).startswith("Every wrong element is NaN")


def test_infinite() -> None:
    assert edited(lambda t: t[3].fill_(-torch.inf)).startswith("Every wrong element is infinite")


def test_constant() -> None:
    assert edited(lambda t: t.fill_(0.5)) == "Every wrong element holds the same value, 0.5."


def test_scaled() -> None:
    assert edited(lambda t: t.mul_(2)) == "Every wrong element is 2 times what it should be."


@pytest.mark.parametrize(("by", "text"), [(0.25, "large by 0.25"), (-3, "small by 3")])
def test_a_constant_difference(by: float, text: str) -> None:
    assert edited(lambda t: t.add_(by)) == f"Every wrong element is too {text}."


def test_a_difference_that_varies_is_no_constant() -> None:
    assert "too" not in edited(lambda t: t.add_(torch.linspace(0.25, 0.26, t.numel()).reshape(t.shape)))


def test_opposite_sign() -> None:
    assert edited(torch.Tensor.neg_) == "Every wrong element has the opposite sign."


@pytest.mark.parametrize(
    ("own", "stored"),
    [
        (torch.int64, torch.int32), (torch.int32, torch.int64), (torch.float64, torch.float32),
        (torch.float32, torch.float16), (torch.float16, torch.bfloat16), (torch.bfloat16, torch.float32),
    ],
)  # fmt: skip
def test_numbers_of_another_type(own: torch.dtype, stored: torch.dtype) -> None:
    expected = (100 * answer(12, 9)).to(own)
    memory = torch.zeros(2 * expected.numel() * 8, dtype=torch.uint8)
    memory[: expected.numel() * stored.itemsize] = expected.to(stored).reshape(-1).view(torch.uint8)
    got = memory[: expected.numel() * own.itemsize].view(own).reshape(12, 9)

    text = describe(Wrong(got, expected, ~torch.isclose(got.double(), expected.double(), 1e-3, 1e-3))).text
    assert text == f"The right values are stored as {stored} in an output of {own}."


@pytest.mark.parametrize("shape", [(32, 32), (67, 45), (3, 8, 5)])
def test_transposed(shape: tuple[int, ...]) -> None:
    expected = answer(*shape)
    got = expected.mT.contiguous().reshape(shape)
    assert explained(got, expected) == "The right values are transposed in memory."


def test_shifted_by_one_column_to_higher_indices() -> None:
    expected = answer(67, 45)
    assert explained(expected.roll(1, 1), expected) == "The right values are shifted by one column, to higher indices."


def test_shifted_by_one_row_to_lower_indices() -> None:
    expected = answer(67, 45)
    assert explained(expected.roll(-1, 0), expected) == "The right values are shifted by one row, to lower indices."


def test_shifted_integers() -> None:
    expected = torch.arange(100).square()
    wrong = Wrong(expected.roll(1), expected, expected.roll(1) != expected)
    assert describe(wrong).text == "The right values are shifted by one element, to higher indices."


def test_every_row_the_same() -> None:
    expected = answer(67, 45)
    assert explained(expected[:1].repeat(67, 1), expected) == "Every row is the same."


def test_last_columns_unwritten_after_whole_tiles() -> None:
    assert edited(lambda t: t[:, 32:].zero_()) == (
        "Every wrong element is 0; the wrong elements fill the last 13 of 45 columns, from 32 on: "
        "the tail after whole tiles of 32."
    )


def test_a_tail_is_recognised_despite_zeros_that_are_right_by_chance() -> None:
    expected = answer(67, 45).relu()
    got = expected.clone()
    got[64:] = 0
    assert "the last 3 of 67 rows, from 64 on: the tail after whole tiles of 64" in explained(got, expected)


def test_one_column() -> None:
    assert edited(lambda t: t[:, 7].add_(answer(67, seed=1))) == "The wrong elements fill column 7 of 45."


def test_the_last_row_alone() -> None:
    assert edited(lambda t: t[66].add_(answer(45, seed=1))) == "The wrong elements fill the last of 67 rows."


def test_the_last_column_alone_after_whole_tiles() -> None:
    tail = "The wrong elements fill the last of 45 columns: the tail after whole tiles of 4."
    assert edited(lambda t: t[:, 44].add_(answer(67, seed=1))) == tail


def test_the_last_element_alone() -> None:
    assert edited(lambda t: t[66, 44].add_(1)) == "Only the last element is wrong."


def test_some_rows() -> None:
    assert edited(lambda t: t[5:12].add_(answer(7, 45, seed=1))) == "The wrong elements fill rows 5 to 11 of 67."


def test_listed_rows() -> None:
    edit = edited(lambda t: t.index_add_(0, torch.tensor([2, 9, 11]), answer(3, 45)))
    assert edit == "The wrong elements fill rows 2, 9, 11 of 67."


def test_every_fourth_column() -> None:
    assert (
        edited(lambda t: t[:, 3::4].add_(answer(67, 11, seed=1)))
        == "The wrong elements fill every 4th column, from 3 on."
    )


def test_one_slice_of_a_batch() -> None:
    assert (
        edited(lambda t: t[2].add_(answer(8, 5, seed=1)), 4, 8, 5)
        == "The wrong elements fill slice 2 of 4 along dimension 0."
    )


def test_partial_tiles_in_both_directions() -> None:
    def edit(t: torch.Tensor) -> None:
        t[64:] += answer(3, 45, seed=1)
        t[:64, 32:] += answer(64, 13, seed=2)

    assert edited(edit) == "The wrong elements fill the last tiles, rows from 64 and columns from 32 on."


def test_one_block() -> None:
    assert edited(lambda t: t[16:32, 8:16].add_(answer(16, 8, seed=1))) == (
        "The wrong elements fill one block, rows 16 to 31, columns 8 to 15."
    )


def test_rest_of_memory() -> None:
    assert edited(lambda t: t.view(-1)[1024:].add_(answer(1991, seed=1))) == (
        "All elements from 1024 on, in memory order, are wrong: the tail after whole tiles of 256."
    )


def test_run_in_memory() -> None:
    assert edited(lambda t: t.view(-1)[100:300].add_(answer(200, seed=1))) == (
        "The wrong elements are one run in memory order, from 100 to 299."
    )


def test_every_third_element() -> None:
    assert (
        edited(lambda t: t[1::3].add_(answer(333, seed=1)), 1000)
        == "Every 3rd element in memory order is wrong, from 1 on."
    )


def test_one_wrong_element_has_no_pattern() -> None:
    assert edited(lambda t: t[3, 3].zero_()) == ""


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**31),
    shape=st.sampled_from([(64,), (64, 64), (33, 7), (1000, 4), (4, 9, 16), (1, 200)]),
    share=st.sampled_from([0.02, 0.1, 0.3, 0.5, 0.7]),
)
def test_random_errors_have_no_pattern(seed: int, shape: tuple[int, ...], share: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    expected, noise, chance = (torch.randn(shape, generator=generator) for _ in range(3))
    mask = chance.argsort(-1).argsort(-1) < share * shape[-1]
    mask = mask.reshape(-1)[torch.randperm(mask.numel(), generator=generator)].reshape(shape)
    assert describe(Wrong(torch.where(mask, expected + noise, expected), expected, mask)).text == ""


@settings(max_examples=30)
@given(seed=st.integers(0, 2**31), shape=st.sampled_from([(64,), (33, 7), (4, 9, 16)]))
def test_an_answer_wrong_everywhere_has_no_pattern(seed: int, shape: tuple[int, ...]) -> None:
    got, expected = answer(*shape, seed=seed), answer(*shape, seed=seed + 1)
    assert describe(Wrong(got, expected, torch.ones(shape, dtype=torch.bool))).text == ""


def test_first_mismatches_come_in_row_major_order() -> None:
    expected = torch.zeros(3, 4)
    got = expected.clone()
    got[2, 0], got[0, 3] = 1, 2
    assert first_mismatches(Wrong(got, expected, got != expected)) == (
        Mismatch((0, 3), 2.0, 0.0),
        Mismatch((2, 0), 1.0, 0.0),
    )


def test_at_most_five_mismatches_are_listed() -> None:
    expected = torch.zeros(3, 4)
    assert len(first_mismatches(Wrong(expected + 1, expected, expected == 0))) == 5


def test_a_scalar_has_an_empty_index() -> None:
    expected = torch.tensor(1.0)
    assert first_mismatches(Wrong(expected + 1, expected, torch.tensor(True))) == (Mismatch((), 2.0, 1.0),)


def test_a_complex_mismatch_shows_its_worse_part() -> None:
    got, expected = torch.tensor([1 + 2j]), torch.tensor([1 + 5j])
    assert first_mismatches(Wrong(got, expected, torch.tensor([True]))) == (Mismatch((0, 1), 2.0, 5.0),)


# The advice, one line per mistake.


def advised(edit: Callable[[torch.Tensor], object]) -> str:
    expected = answer(67, 45)
    got = expected.clone()
    edit(got)
    return describe(Wrong(got, expected, ~torch.isclose(got, expected))).advice


@pytest.mark.parametrize(
    ("edit", "fragment"),
    [
        (torch.Tensor.zero_, "the launch covers the output"),
        (lambda t: t[3, 5].fill_(torch.nan), "is written before it is read"),
        (lambda t: t.fill_(0.5), "index that the kernel writes to"),
        (lambda t: t.mul_(2), "too often or too rarely"),
        (lambda t: t.copy_(t.T.reshape(67, 45)), "swap the row and the column"),
        (lambda t: t.copy_(t.roll(1, 1)), "off by one"),
        (lambda t: t.copy_(t[:1].repeat(67, 1)), "an index is missing"),
        (lambda t: t[:, 32:].zero_(), "round the grid up"),
        (lambda t: t[66].fill_(torch.nan), "one too small in a guard"),
        (lambda t: t[:, 1:].copy_(answer(67, 44, seed=1)), "this index is multiplied by"),
        (lambda t: t[66, 44].fill_(torch.nan), "one too small in a guard"),
        (lambda t: t[:, 3::4].add_(1), "how a thread's index becomes"),
        (lambda t: t[16:32, 16:32].add_(answer(16, 16, seed=1)), "barriers around its shared memory"),
        (lambda t: t.view(-1)[1030:].zero_(), "launch more threads"),
        (lambda t: t.view(-1)[3::8].zero_(), "vectorised or unrolled"),
    ],
)
def test_a_recognised_mistake_comes_with_advice(edit: Callable[[torch.Tensor], object], fragment: str) -> None:
    assert fragment in advised(edit)


def test_without_a_pattern_there_is_no_advice() -> None:
    assert advised(lambda t: t[3, 5].add_(1)) == ""


def test_a_frame_or_a_run_that_is_nearly_everything_shows_nothing() -> None:
    expected = torch.rand(48, 64, generator=torch.Generator().manual_seed(0)) + 1
    noise = torch.rand(48, 64, generator=torch.Generator().manual_seed(1)) + 2
    frame, run = expected.clone(), expected.clone()
    frame[4:], frame[:, 4:] = noise[4:], noise[:, 4:]
    run.view(-1)[100:3000] = noise.view(-1)[100:3000]
    for got in (frame, run):
        assert describe(Wrong(got, expected, got != expected)).text == ""
