"""Sums of very many numbers to one: the limits are those of float32 sums, and a sum of a part is beyond them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from support.sums import HONEST, chain, drawn, strided
from torch import Tensor

from kernel_harness.checking.compared import Expectation
from kernel_harness.checking.verify import verify
from kernel_harness.core.precision import Change, Precision, Tolerance, default_tolerance
from kernel_harness.core.status import Status

torch.set_num_threads(1)

N = 1 << 22


def mean(x: Tensor) -> Tensor:
    """The mean of all numbers."""
    return x.mean()


def verdict(
    got: float,
    x: Tensor,
    model: Callable[[Tensor], Tensor] = mean,
    *,
    distribution: str = "own",
    tolerance: Tolerance | None = None,
    allowed: Precision | None = None,
) -> Status:
    def oracle(change: Change = lambda t: t) -> tuple[Tensor, ...]:
        return (model(change(x).double()),)

    right = Expectation(
        "a sum", distribution, (model(x),), oracle(), None, tolerance or default_tolerance(torch.float32),
        rounded=oracle, inputs=(x,), allowed_precision=allowed,
    )  # fmt: skip
    return verify([torch.tensor(got)], right).status


@pytest.mark.parametrize("distribution", ["own", "spikes"])
@pytest.mark.parametrize("exponent", [16, 21])
@pytest.mark.parametrize("name", HONEST)
def test_an_honest_mean_is_right(name: str, exponent: int, distribution: str) -> None:
    for x in drawn(1 << exponent).values():
        assert verdict(HONEST[name](x) / x.size, torch.from_numpy(x), distribution=distribution) is Status.PASSED


def test_one_chain_of_many_numbers_is_right() -> None:
    for x in drawn(1 << 17).values():
        assert verdict(chain(x) / x.size, torch.from_numpy(x)) is Status.PASSED


@pytest.mark.parametrize("distribution", ["own", "spikes"])
def test_a_mean_that_is_off_by_less_than_the_tolerance_of_elements_is_wrong(distribution: str) -> None:
    """The mean is 0.17, so that an absolute tolerance of 1e-4 would allow an error of 6e-4."""
    x = drawn(N)["squares of differences"]
    right = strided(1024)(x) / N
    found = {
        share: verdict(right * (1 + share), torch.from_numpy(x), distribution=distribution) for share in (1e-5, 4e-5)
    }
    assert found == {1e-5: Status.PASSED, 4e-5: Status.WRONG_VALUES}


def test_the_mean_of_nine_tenths_is_wrong() -> None:
    x = torch.from_numpy(drawn(N)["0 to 1"])
    found = [
        verdict(float(torch.cat([x[: i * N // 10], x[(i + 1) * N // 10 :]]).double().mean()), x) for i in range(10)
    ]
    assert found.count(Status.WRONG_VALUES) >= 6


def test_the_mean_of_numbers_that_cancel_may_err_as_their_sums_do() -> None:
    """The mean is a thousandth of the numbers, so a chain errs by more than the limit of a sum."""
    x = torch.randn(N, generator=torch.Generator().manual_seed(3))
    x -= x.double().mean().float() - 1e-7
    right = float(x.double().mean())
    off = right * (1 + 1e-4)
    assert abs(right) < 1e-6
    assert verdict(off, x) is Status.PASSED


def test_a_stated_tolerance_and_an_allowed_format_are_kept() -> None:
    x = torch.from_numpy(drawn(N)["0 to 1"])
    off = float(x.double().mean()) * (1 + 5e-5)
    assert verdict(off, x) is Status.WRONG_VALUES
    assert verdict(off, x, tolerance=Tolerance(1e-3, 0.0)) is Status.PASSED
    assert verdict(off, x, allowed=Precision.TF32) is Status.PASSED


def test_few_numbers_of_few_inputs_are_no_sums() -> None:
    x = torch.from_numpy(drawn(1 << 18)["0 to 1"])[:512]
    assert verdict(float(x.double().mean()) * (1 + 1.5e-4), x) is Status.PASSED
