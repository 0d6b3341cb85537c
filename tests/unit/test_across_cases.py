"""Mistakes that several cases show together: a factor that follows a size, and sizes that are no multiple of a tile."""

from __future__ import annotations

import pytest
import torch

from kernel_harness.explain.across_cases import Seen, factor, partial_tile, ratio


def wrong(ratio: float | None = None, counts: tuple[int, ...] = (), **sizes: int) -> Seen:
    return Seen(sizes, counts, False, ratio)


def right(**sizes: int) -> Seen:
    return Seen(sizes, (), True)


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        ([wrong(64.0, N=64), wrong(50.0, N=50)], "N times what it should be (64 in this case)"),
        ([wrong(1 / 64, N=64), wrong(1 / 50, N=50)], "1 / N times"),
        ([wrong(8.0, N=64), wrong(10.0, N=100)], "the square root of N times"),
        ([wrong(4096.0, (4096,), N=64), wrong(2500.0, (2500,), N=50)], "the number of elements of input 1 times"),
        ([wrong(-2.0, N=64), wrong(-2.0, N=50)], "-2 times what it should be, in each of 2 cases"),
    ],
)
def test_a_factor_in_all_cases(seen: list[Seen], text: str) -> None:
    found = factor(seen)
    assert found and text in found.text


@pytest.mark.parametrize(
    "seen",
    [
        [wrong(64.0, N=64)],  # one case could have any factor
        [wrong(64.0, N=64), wrong(3.0, N=50)],
        [wrong(64.0, N=64), wrong(None, N=50)],
        [wrong(1.002, N=64), wrong(1.002, N=50)],  # a precision, not a factor
    ],
)
def test_no_factor(seen: list[Seen]) -> None:
    assert factor(seen) is None


def test_the_ratio_of_outputs() -> None:
    expected = torch.tensor([1.0, 0.0, 4.0])
    assert ratio([2 * expected], [expected]) == 2
    assert ratio([torch.tensor([2.0, 0.0, 4.0])], [expected]) is None
    assert ratio([torch.zeros(2)], [torch.zeros(2)]) is None
    assert ratio([torch.tensor([2])], [torch.tensor([1])]) is None


def test_sizes_that_are_no_multiple_of_a_tile() -> None:
    found = partial_tile([right(M=48, K=256), right(M=33, K=96), wrong(M=31, K=33), wrong(M=5, K=100)])
    assert found and "right where K is a multiple of 32 (K=256), and wrong where not (K=33)" in found.text
    assert "tile along K" in found.advice


@pytest.mark.parametrize(
    "seen",
    [
        [wrong(K=33), wrong(K=100)],  # nothing passed
        [right(K=33), right(K=64), wrong(K=64)],  # the same sizes passed with other inputs
        [right(K=33), wrong(K=64)],
        [right(shape=(64, 64)), wrong(shape=(33, 33))],  # type: ignore[arg-type]
    ],
)
def test_no_rule_about_sizes(seen: list[Seen]) -> None:
    assert partial_tile(seen) is None
