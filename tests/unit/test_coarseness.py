"""Outputs of half types: those of honest kernels pass, those of coarser formats are found behind the last rounding."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from support.float32_sums import TF32, tensor_core
from support.half_products import (
    COARSE,
    COARSE_ATTENTION,
    HALF_SUMS,
    HONEST,
    HONEST_ATTENTION,
    bits,
    int8,
    of_attention,
    of_product,
)
from torch import Tensor

from kernel_harness.checking import operators
from kernel_harness.checking.coarseness import HALVES, Dither, measured
from kernel_harness.checking.compared import Expectation
from kernel_harness.checking.verify import Check, verify
from kernel_harness.core.precision import Change, Precision, Rounding, default_tolerance
from kernel_harness.core.status import Status

torch.set_num_threads(1)

TYPES = pytest.mark.parametrize("dtype", HALVES, ids=str)
DRAWS = pytest.mark.parametrize("draw", [torch.randn, torch.rand], ids=["normal", "positive"])


@TYPES
@DRAWS
@pytest.mark.parametrize("name", HONEST)
def test_an_honest_product_stays_far_from_the_line(name: str, dtype: torch.dtype, draw: Callable[..., Tensor]) -> None:
    found = of_product(HONEST[name], dtype, draw)
    assert not found.found
    assert found.error < 1e-5


@TYPES
@DRAWS
@pytest.mark.parametrize("name", COARSE)
def test_a_coarser_product_is_found(name: str, dtype: torch.dtype, draw: Callable[..., Tensor]) -> None:
    assert of_product(COARSE[name], dtype, draw).found


@TYPES
def test_few_partial_sums_in_the_half_type_pass_where_they_err_as_rounded_inputs_do(dtype: torch.dtype) -> None:
    kernel = HALF_SUMS["4 partial sums in the half type"]
    assert [of_product(kernel, dtype, draw).found for draw in (torch.randn, torch.rand)] == [False, True]


@TYPES
@DRAWS
@pytest.mark.parametrize("name", HONEST_ATTENTION)
def test_flash_attention_as_published_passes(name: str, dtype: torch.dtype, draw: Callable[..., Tensor]) -> None:
    assert not of_attention(HONEST_ATTENTION[name], dtype, draw).found


@TYPES
@pytest.mark.parametrize("name", COARSE_ATTENTION)
def test_attention_in_a_coarser_format_is_found(name: str, dtype: torch.dtype) -> None:
    assert of_attention(COARSE_ATTENTION[name], dtype, torch.randn).found


# The estimate of the error before the last rounding.


@TYPES
@pytest.mark.parametrize("share", [1e-3, 0.1, 1.0, 10.0])
def test_the_error_before_the_last_rounding_is_measured(dtype: torch.dtype, share: float) -> None:
    generator = torch.Generator().manual_seed(0)
    truth = 1 + torch.rand(1 << 18, generator=generator, dtype=torch.float64)
    error = share * torch.finfo(dtype).eps * torch.randn(len(truth), generator=generator, dtype=torch.float64)
    estimate, least = measured((truth + error).to(dtype), truth)
    assert estimate == pytest.approx(float(error.norm()), rel=0.15)
    assert least < estimate


@TYPES
def test_a_result_that_is_cut_has_no_error_before_it(dtype: torch.dtype) -> None:
    truth = torch.randn(4096, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    nearest = truth.to(dtype)
    cut = torch.where(nearest.double().abs() > truth.abs(), nearest.view(torch.int16) - 1, nearest.view(torch.int16))
    assert measured(cut.view(dtype), truth) == (0.0, 0.0)


@TYPES
def test_infinite_and_missing_numbers_do_not_count(dtype: torch.dtype) -> None:
    truth = torch.tensor([torch.inf, torch.nan, 0.0, 1.0, -torch.inf], dtype=torch.float64)
    assert measured(truth.to(dtype), truth) == (0.0, 0.0)


@TYPES
def test_a_dither_moves_numbers_as_much_as_a_rounding_does(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    exact = 1 + torch.rand(1 << 18, generator=generator, dtype=torch.float64)
    values = exact.to(dtype)
    moved = Dither(Precision.of(dtype), 1)(values)
    by_rounding = (values.double() - exact).square().mean()
    assert float((moved.double() - values.double()).square().mean()) == pytest.approx(float(by_rounding), rel=0.05)
    assert (moved.double() - values.double()).mean().abs() < torch.finfo(dtype).eps / 100


def test_a_dither_leaves_zeros_infinities_and_choices() -> None:
    signs = torch.tensor([1.0, -1.0]).repeat(500).half()
    assert torch.equal(Dither(Precision.FLOAT16, 1)(signs), signs)
    values = torch.randn(1000, generator=torch.Generator().manual_seed(0)).half()
    values[::2], values[1] = 0, torch.inf
    moved = Dither(Precision.FLOAT16, 1)(values)
    assert not moved[::2].any() and moved[1] == torch.inf and not torch.equal(moved, values)


# The check.


class Product:
    """A product of positive numbers in a half type."""

    def __init__(self, dtype: torch.dtype = torch.bfloat16, terms: int = 512) -> None:
        generator = torch.Generator().manual_seed(1)
        self.a, self.b = (torch.rand(shape, generator=generator).to(dtype) for shape in ((96, 512), (512, 96)))
        self.dtype, self.terms = dtype, terms

    def oracle(self, change: Change = lambda x: x) -> tuple[Tensor, ...]:
        return (change(self.a).double() @ change(self.b).double(),)

    def check(self, a: Tensor, b: Tensor, allowed: Precision | None = None, factor: float = 1.0) -> Check:
        expectation = Expectation(
            "a product", "own", (self.a @ self.b,), self.oracle(), None, default_tolerance(self.dtype),
            allowed_precision=allowed, rounded=self.oracle, terms=self.terms,
        )  # fmt: skip
        return verify([(factor * (a.float() @ b.float())).to(self.dtype)], expectation)


def test_int8_hides_behind_the_rounding_of_the_output_and_is_found() -> None:
    product = Product()
    check = product.check(int8(product.a, 1), int8(product.b, 0))
    assert check.relative_error is not None and check.relative_error < 2.5e-3
    assert check.status is Status.REDUCED_PRECISION
    assert "significant bits" in check.detail


def test_the_product_itself_passes() -> None:
    product = Product()
    check = product.check(product.a, product.b)
    assert (check.status, check.precision) == (Status.PASSED, None)


def test_models_without_products_are_not_examined() -> None:
    product = Product(terms=0)
    assert product.check(int8(product.a, 1), int8(product.b, 0)).passed


def test_bfloat16_in_a_float16_problem_must_be_allowed() -> None:
    product = Product(torch.float16)
    rounded = product.a.bfloat16(), product.b.bfloat16()
    assert product.check(*rounded).status is Status.REDUCED_PRECISION
    check = product.check(*rounded, allowed=Precision.BFLOAT16)
    assert (check.status, check.precision) == (Status.PASSED, Precision.BFLOAT16)
    assert product.check(int8(product.a, 1), int8(product.b, 0), Precision.BFLOAT16).status is Status.REDUCED_PRECISION


def test_a_few_wrong_elements_are_wrong_values() -> None:
    product = Product()
    a = product.a.clone()
    a[3] *= 1.5
    assert product.check(a, product.b).status is Status.WRONG_VALUES


@pytest.mark.parametrize(
    ("call", "multiplies"),
    [
        (lambda x: x @ x, True),
        (lambda x: x @ x[0], True),
        (lambda x: torch.einsum("ij,kj->ik", x, x), True),
        (lambda x: torch.nn.functional.conv1d(x[None], x[:, :, None]), True),
        (lambda x: torch.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]), True),
        (lambda x: torch.nn.LSTM(16, 4)(x), True),
        (lambda x: torch.nn.functional.layer_norm(x, (16,)).softmax(-1).cumsum(0), False),
        (lambda x: torch.nn.functional.interpolate(x[None, None], scale_factor=2, mode="bilinear"), False),
    ],
)
def test_operators_that_sum_up_products_are_seen(call: Callable[[Tensor], object], multiplies: bool) -> None:
    with torch.no_grad(), operators.Called() as called:
        call(torch.ones(16, 16))
    assert called.any(operators.PRODUCTS) is multiplies


@pytest.mark.parametrize(("composite", "status"), [(True, Status.PASSED), (False, Status.REDUCED_PRECISION)])
def test_a_softmax_may_be_composed_of_operators_that_round_their_results(composite: bool, status: Status) -> None:
    x, weight = (torch.randn(64, 64, generator=torch.Generator().manual_seed(seed)).bfloat16() for seed in (0, 1))

    def oracle(change: Change = lambda t: t) -> tuple[Tensor, ...]:
        return ((change(x).double() @ change(weight).double() / 16).softmax(-1),)

    scores = x @ weight / 16
    parts = torch.exp(scores - scores.amax(-1, keepdim=True))
    expectation = Expectation(
        "softmax", "small", ((x.float() @ weight.float() / 16).softmax(-1).bfloat16(),), oracle(), None,
        default_tolerance(torch.bfloat16), rounded=oracle, terms=64, composite=composite,
    )  # fmt: skip
    assert verify([parts / parts.sum(-1, keepdim=True)], expectation).status is status


# A float32 output, where a coarser format is allowed.

TRUNCATED = Rounding(Precision.TF32, toward_zero=True)
ALLOWED_FACTORS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "TF32": (TF32, TF32),
    "TF32, cut": (TRUNCATED, TRUNCATED),
    "TF32, cut, for one factor": (TRUNCATED, Tensor.float),
    "float16": (lambda x: x.half().float(), lambda x: x.half().float()),
}
COARSER_FACTORS: dict[str, Callable[[Tensor], Tensor]] = {
    "bfloat16": lambda x: x.bfloat16().float(),
    "bfloat16, cut": Rounding(Precision.BFLOAT16, toward_zero=True),
    "int8": int8,
    "4 bits": lambda x: (x * 15).round() / 15,
    "9 bits": lambda x: bits(x, 9),
}


class Timed:
    """A timed call of a product of positive float32 matrices, where TF32 is allowed."""

    def __init__(self, k: int) -> None:
        generator = torch.Generator().manual_seed(2)
        self.a, self.b = (torch.rand(shape, generator=generator) for shape in ((96, k), (k, 96)))

    def oracle(self, change: Change = lambda x: x) -> tuple[Tensor, ...]:
        return (change(self.a).double() @ change(self.b).double(),)

    def check(self, output: Tensor, allowed: Precision = Precision.TF32) -> Check:
        expectation = Expectation(
            "a timed call", "own", (self.a @ self.b,), self.oracle(), None, default_tolerance(torch.float32),
            allowed_precision=allowed, rounded=self.oracle, terms=self.a.shape[1], searches=False,
        )  # fmt: skip
        return verify([output], expectation)


@pytest.mark.parametrize("sum_up", [torch.matmul, lambda a, b: tensor_core(a.T, b)], ids=["float32", "tensor cores"])
@pytest.mark.parametrize("name", ALLOWED_FACTORS)
def test_an_allowed_format_passes_in_timed_calls(name: str, sum_up: Callable[..., Tensor]) -> None:
    timed, (left, right) = Timed(1024), ALLOWED_FACTORS[name]
    assert timed.check(sum_up(left(timed.a), right(timed.b))).passed


@pytest.mark.parametrize("k", [256, 4096])
@pytest.mark.parametrize("name", COARSER_FACTORS)
def test_a_format_coarser_than_the_allowed_is_found_in_timed_calls(name: str, k: int) -> None:
    timed, change = Timed(k), COARSER_FACTORS[name]
    check = timed.check(change(timed.a) @ change(timed.b))
    assert check.relative_error is not None and check.relative_error < 1e-2
    assert check.status is Status.REDUCED_PRECISION


def test_int8_is_coarser_than_bfloat16_in_a_float32_problem() -> None:
    timed = Timed(1024)
    found = {
        name: timed.check(change(timed.a) @ change(timed.b), Precision.BFLOAT16).status
        for name, change in COARSER_FACTORS.items()
        if name in ("bfloat16", "bfloat16, cut", "int8")
    }
    assert found["bfloat16"] is found["bfloat16, cut"] is Status.PASSED
    assert found["int8"] is Status.REDUCED_PRECISION


@pytest.mark.parametrize("rounding", [TF32, TRUNCATED, Rounding(Precision.BFLOAT16)], ids=["TF32", "cut", "bfloat16"])
@pytest.mark.parametrize("layers", [2, 8])
def test_layers_that_round_what_is_between_them_pass(rounding: Rounding, layers: int) -> None:
    generator = torch.Generator().manual_seed(3)
    x, *weights = (torch.rand(64, 64, generator=generator) for _ in range(layers + 1))
    weights = [w - 0.5 for w in weights]

    def model(change: Change, x: Tensor, *weights: Tensor) -> Tensor:
        for weight in weights:
            x = torch.relu(change(x) @ change(weight))
        return x

    def oracle(change: Change = lambda t: t) -> tuple[Tensor, ...]:
        return (model(lambda t: t, *(change(t).double() for t in (x, *weights))),)

    expectation = Expectation(
        "layers", "own", (model(lambda t: t, x, *weights),), oracle(), None, default_tolerance(torch.float32),
        allowed_precision=rounding.precision, rounded=oracle, terms=64, searches=False,
    )  # fmt: skip
    assert verify([model(rounding, x, *weights)], expectation).status is not Status.REDUCED_PRECISION
