"""Errors of sums: those of honest float32 kernels show no rounding of the inputs, those of reduced precision do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.float32_sums import HONEST, REDUCED, TF32, figures, of_sums

from kernel_harness.checking.compared import Expectation
from kernel_harness.checking.input_rounding import MIN_CORRELATION, ROUNDINGS, resemblance
from kernel_harness.checking.verify import Check, verify
from kernel_harness.core.precision import Precision, Rounding, default_tolerance
from kernel_harness.core.status import Status

torch.set_num_threads(1)

# The roundings.


def test_bfloat16_rounds_as_torch_does() -> None:
    x = torch.randn(10_000, generator=torch.Generator().manual_seed(0))
    assert torch.equal(Rounding(Precision.BFLOAT16)(x), x.bfloat16().float())


@pytest.mark.parametrize(
    ("value", "nearest", "truncated"),
    [
        (1 + 2**-10, 1 + 2**-10, 1 + 2**-10),
        (1 + 2**-11, 1.0, 1.0),  # a tie, to even
        (1 + 3 * 2**-11, 1 + 2**-9, 1 + 2**-10),
        (-(1 + 2**-11 + 2**-20), -(1 + 2**-10), -1.0),
        (torch.inf, torch.inf, torch.inf),
        (0.0, 0.0, 0.0),
    ],
)
def test_tf32_keeps_ten_bits(value: float, nearest: float, truncated: float) -> None:
    x = torch.tensor([value])
    assert TF32(x).item() == nearest
    assert Rounding(Precision.TF32, toward_zero=True)(x).item() == truncated


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64])
def test_other_dtypes_are_not_rounded(dtype: torch.dtype) -> None:
    x = torch.tensor([3, 5], dtype=dtype)
    assert TF32(x) is x


# What the errors show.


@pytest.mark.parametrize("k", [256, pytest.param(4096, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", HONEST)
def test_an_honest_sum_stays_far_from_the_limit(name: str, k: int) -> None:
    found = of_sums(HONEST[name], k)
    assert found.trace is None
    assert found.correlation < MIN_CORRELATION / 3


@pytest.mark.parametrize("k", [256, pytest.param(4096, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", REDUCED)
def test_reduced_precision_is_recognised_on_positive_inputs(name: str, k: int) -> None:
    found = of_sums(REDUCED[name], k)
    assert found.trace is not None
    assert found.trace.rounding.precision == (Precision.BFLOAT16 if "bfloat16" in name else Precision.TF32)


def test_the_size_of_an_error_does_not_separate_tf32_from_an_honest_sum() -> None:
    honest, reduced = of_sums(HONEST["one chain"], 8192), of_sums(REDUCED["TF32, rounded, chains of 256 terms"], 8192)
    assert honest.error == pytest.approx(1.2e-6, rel=0.1)
    assert reduced.error == pytest.approx(3.8e-6, rel=0.1)


def running_sums(x: torch.Tensor) -> torch.Tensor:
    """The running sums of each row, one number after the other."""
    return torch.from_numpy(np.add.accumulate(x.numpy(), axis=1))  # torch's cumsum adds in another order


def outer(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.sum(1, keepdim=True) * y


def outer_of_chains(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return running_sums(x)[:, -1:] * y


def normalised(x: torch.Tensor) -> torch.Tensor:
    mean, squares = x.mean(1, keepdim=True), (x * x).mean(1, keepdim=True)
    return (x - mean) / (squares - mean * mean).sqrt()


def normalised_by_chains(x: torch.Tensor) -> torch.Tensor:
    mean, squares = (running_sums(y)[:, -1:] / x.shape[1] for y in (x, x * x))
    return (x - mean) * torch.rsqrt(squares - mean * mean)


def test_a_normalisation_with_long_chains_errs_a_lot_and_passes() -> None:
    x = torch.rand(4, 65536, generator=torch.Generator().manual_seed(0))
    found = figures(normalised_by_chains, normalised, [x])
    assert found.error > 1e-5
    assert found.trace is None


@pytest.mark.parametrize("seed", range(20))
def test_outputs_that_depend_on_each_other_prove_nothing(seed: int) -> None:
    """The honest errors of all outputs come from a few sums, so they can resemble anything by chance."""
    generator = torch.Generator().manual_seed(seed)
    walks = torch.rand(16, 4096, generator=generator)
    few, integers = torch.rand(3, 32768, generator=generator), torch.randint(1, 9, (1, 2000), generator=generator)

    assert figures(running_sums, lambda x: x.cumsum(1), [walks]).trace is None
    assert figures(outer_of_chains, outer, [few, integers.float()]).trace is None


def test_a_long_sum_of_inputs_is_honest_although_its_error_follows_their_last_bits() -> None:
    """A partial sum of 8192 numbers between 1 and 2 keeps ten bits of each number after the point, as TF32 does."""
    inputs = 1 + torch.rand(256, 8192, generator=torch.Generator().manual_seed(0))
    found = figures(lambda x: running_sums(x)[:, -1], lambda x: x.sum(1), [inputs])
    assert found.correlation > MIN_CORRELATION
    assert found.trace is None


def test_a_factor_for_all_elements_is_no_resemblance() -> None:
    truth = torch.rand(2048, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 1
    assert resemblance((truth * 1.001).float(), truth, truth * 1.002).correlation == pytest.approx(0, abs=0.1)


def test_equal_numbers_resemble_nothing() -> None:
    x = torch.ones(2048, dtype=torch.float64)
    assert resemblance(x.float(), x, x).correlation == 0
    assert resemblance(torch.zeros(2048), torch.zeros(2048).double(), torch.zeros(2048).double()).share == 0


def test_elements_that_are_not_finite_do_not_count() -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.rand(2048, dtype=torch.float64, generator=generator)
    effect = 1e-3 * torch.randn(2048, dtype=torch.float64, generator=generator)
    output = (truth + effect).float()
    output[7] = torch.nan
    assert resemblance(output, truth, truth + effect).correlation > 0.99


# The check.


class Product:
    """The product of two positive matrices, of which a candidate may round the factors."""

    def __init__(self, k: int = 2048) -> None:
        generator = torch.Generator().manual_seed(1)
        self.a, self.b = torch.rand(k, 32, generator=generator), torch.rand(k, 40, generator=generator)

    def oracle(self, rounding: Rounding | None = None) -> tuple[torch.Tensor, ...]:
        a, b = (self.a, self.b) if rounding is None else (rounding(self.a), rounding(self.b))
        return (a.double().T @ b.double(),)

    def check(
        self, output: torch.Tensor, *, allowed: Precision | None = None, zero_mean: bool = False, known: bool = True
    ) -> Check:
        expectation = Expectation(
            "a product", "own", (self.a.T @ self.b,), self.oracle(), None, default_tolerance(output.dtype),
            zero_mean=zero_mean, allowed_precision=allowed, rounded=self.oracle if known else lambda rounding: None,
        )  # fmt: skip
        return verify([output], expectation)

    @property
    def of_tf32(self) -> torch.Tensor:
        return TF32(self.a).T @ TF32(self.b)


def test_positive_inputs_rounded_to_tf32_are_reduced_precision() -> None:
    product = Product()
    check = product.check(product.of_tf32)
    assert check.relative_error is not None and check.relative_error < 1e-5
    assert (check.status, check.precision) == (Status.REDUCED_PRECISION, Precision.TF32)
    assert "inputs rounded to tf32" in check.detail


def test_without_an_answer_for_rounded_inputs_nothing_is_said() -> None:
    product = Product()
    assert product.check(product.of_tf32, known=False).passed


def test_an_allowed_format_passes_and_is_told() -> None:
    product = Product()
    check = product.check(product.of_tf32, allowed=Precision.TF32)
    assert (check.status, check.precision) == (Status.PASSED, Precision.TF32)


def test_the_error_of_the_reference_s_own_size_is_not_examined() -> None:
    product = Product()

    def never(rounding: Rounding) -> None:
        raise AssertionError("an answer for rounded inputs was computed")

    expected = product.a.T @ product.b
    expectation = Expectation(
        "a product", "own", (expected,), product.oracle(), None, default_tolerance(torch.float32), rounded=never
    )
    assert verify([expected.clone()], expectation).passed


def test_few_elements_are_not_examined() -> None:
    product = Product()
    product.a, product.b = product.a[:, :10], product.b[:, :10]
    assert product.check(product.of_tf32).passed


@pytest.mark.parametrize("rounding", ROUNDINGS, ids=str)
def test_inputs_that_the_rounding_does_not_change_show_nothing(rounding: Rounding) -> None:
    product = Product()
    product.a, product.b = rounding(product.a), rounding(product.b)
    noisy = (product.oracle()[0] * (1 + 3e-6 * torch.randn(32, 40).double())).float()
    assert product.check(noisy).passed


def test_outputs_whose_shape_depends_on_the_numbers_are_not_examined() -> None:
    product = Product()

    def another_shape(change: object) -> tuple[torch.Tensor, ...]:
        return (product.oracle()[0][:-1],)

    expectation = Expectation(
        "a product", "own", (product.a.T @ product.b,), product.oracle(), None, default_tolerance(torch.float32),
        rounded=another_shape,
    )  # fmt: skip
    assert verify([product.of_tf32], expectation).passed
