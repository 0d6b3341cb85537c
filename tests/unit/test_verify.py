"""What counts as a right answer. Each step of `verify` has a test that fails without that step."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_harness.checking.compared import Expectation
from kernel_harness.checking.verify import Check, same, status, unchanged, verify
from kernel_harness.checking.wrong_elements import Mismatch
from kernel_harness.core.precision import Precision, Tolerance, default_tolerance
from kernel_harness.core.status import Status

torch.set_num_threads(1)
FLOAT32 = default_tolerance(torch.float32)


def plain(*expected: torch.Tensor, distribution: str = "own", tolerance: Tolerance = FLOAT32) -> Expectation:
    """A case with a reference and no oracle."""
    return Expectation("a case", distribution, expected, None, None, tolerance)


class Matmul:
    """A.T @ B.T with reference, oracle and error scale: 64 x 96 outputs, each a sum of K products."""

    def __init__(self, distribution: str = "normal", k: int = 512) -> None:
        generator = torch.Generator().manual_seed(7)
        if distribution == "integers":
            self.a, self.b = (torch.randint(-8, 9, shape, generator=generator).float() for shape in ((k, 64), (96, k)))
        else:
            self.a, self.b = (torch.randn(shape, generator=generator) for shape in ((k, 64), (96, k)))
        self.reference = self.a.T @ self.b.T
        self.oracle = self.a.double().T @ self.b.double().T
        self.scale = self.a.double().abs().T @ self.b.double().abs().T
        self.distribution = distribution

    def expectation(self, allowed: Precision | None = None, zero_mean: bool = True) -> Expectation:
        return Expectation(
            "a matmul",
            self.distribution,
            (self.reference,),
            (self.oracle,),
            (self.scale,),
            FLOAT32,
            zero_mean=zero_mean,
            allowed_precision=allowed,
        )

    def rounded(self, rounding: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """The product of rounded inputs, summed in float32 as tensor cores do."""
        return rounding(self.a).T @ rounding(self.b).T


def bfloat16(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()


def float16(x: torch.Tensor) -> torch.Tensor:
    return x.half().float()


def tf32(x: torch.Tensor) -> torch.Tensor:
    return ((x.view(torch.int32) + (1 << 12)) & ~0x1FFF).view(torch.float32)


def tf32_truncated(x: torch.Tensor) -> torch.Tensor:
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda x: x, Status.PASSED),
        (lambda x: x * 1.1, Status.WRONG_VALUES),
        (lambda x: x.index_fill(0, torch.tensor([3]), 0.0), Status.WRONG_VALUES),
        (lambda x: x.index_fill(0, torch.tensor([3]), torch.nan), Status.WRONG_VALUES),
        (bfloat16, Status.REDUCED_PRECISION),
        (lambda x: x.double(), Status.WRONG_DTYPE),
        (lambda x: x[1:], Status.WRONG_SHAPE),
    ],
)
def test_the_status_alone_is_that_of_the_whole_check(
    change: Callable[[torch.Tensor], torch.Tensor], wanted: Status
) -> None:
    matmul = Matmul()
    outputs = [change(matmul.reference)]
    assert status(outputs, matmul.expectation()) is verify(outputs, matmul.expectation()).status is wanted


# Step 1: structure, shape, dtype, finite mask.


def test_the_reference_itself_passes() -> None:
    x = torch.arange(35).reshape(5, 7)
    assert verify([x.clone()], plain(x)) == Check("a case", Status.PASSED, 0.0, 0.0)


def test_a_missing_output_is_a_wrong_shape() -> None:
    x = torch.ones(3)
    assert verify([x], plain(x, x)).detail == "Got 1 outputs, expected 2."


def test_an_extra_output_is_a_wrong_shape() -> None:
    x = torch.ones(3)
    assert verify([x, x], plain(x)).status is Status.WRONG_SHAPE


def test_a_transposed_shape_is_wrong() -> None:
    check = verify([torch.ones(3, 2)], plain(torch.ones(2, 3)))
    assert (check.status, check.detail) == (
        Status.WRONG_SHAPE,
        "The output has shape (3, 2), expected (2, 3).",
    )


def test_a_shape_that_would_broadcast_is_wrong() -> None:
    assert verify([torch.ones(1, 3)], plain(torch.ones(2, 3))).status is Status.WRONG_SHAPE


def test_another_dtype_is_wrong_even_with_equal_values() -> None:
    check = verify([torch.ones(3).double()], plain(torch.ones(3)))
    assert (check.status, check.detail) == (
        Status.WRONG_DTYPE,
        "The output is torch.float64, expected torch.float32.",
    )


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (torch.nan, 1.0),
        (1.0, torch.nan),
        (torch.inf, 1.0),
        (torch.inf, -torch.inf),
        (torch.nan, torch.inf),
        (1.0, torch.inf),
    ],
)
def test_non_finite_elements_must_be_the_reference_s(got: float, expected: float) -> None:
    assert verify([torch.tensor([0.0, got])], plain(torch.tensor([0.0, expected]))).status is Status.WRONG_VALUES


@pytest.mark.parametrize("distribution", ["own", "normal"])
def test_finite_output_where_the_reference_overflows_is_wrong(distribution: str) -> None:
    expected = torch.tensor([1.0, torch.inf])
    expectation = Expectation("x", distribution, (expected,), (expected.double(),), None, FLOAT32)
    assert verify([torch.tensor([1.0, 3e38])], expectation).status is Status.WRONG_VALUES


def test_equal_non_finite_elements_pass() -> None:
    x = torch.tensor([torch.nan, torch.inf, -torch.inf, 1.0])
    assert verify([x.clone()], plain(x)).passed


def test_elements_beside_a_nan_are_still_compared() -> None:
    check = verify([torch.tensor([torch.nan, 2.0])], plain(torch.tensor([torch.nan, 1.0])))
    assert check.first_mismatches == (Mismatch((1,), 2.0, 1.0),)


def test_an_overflow_that_only_float64_avoids_passes() -> None:
    expected, oracle = torch.tensor([torch.inf, 1.0]), torch.tensor([1e39, 1.0], dtype=torch.float64)
    expectation = Expectation("x", "normal", (expected,), (oracle,), None, FLOAT32)
    assert verify([expected.clone()], expectation).passed


def test_an_oracle_that_is_not_finite_leaves_the_reference_to_compare_with() -> None:
    expected, oracle = torch.tensor([5.0, 1.0]), torch.tensor([torch.nan, 1.0], dtype=torch.float64)
    expectation = Expectation("x", "normal", (expected,), (oracle,), None, FLOAT32)
    results = [verify([torch.tensor([x, 1.0])], expectation).passed for x in (5.0, 7.0)]
    assert results == [True, False]


# Step 2: precision.


def test_a_sequential_float32_sum_is_float32() -> None:
    matmul = Matmul(k=4096)
    total = torch.zeros_like(matmul.reference)
    for a, b in zip(matmul.a, matmul.b.T, strict=True):
        total += a[:, None] * b[None]
    check = verify([total], matmul.expectation())
    assert (check.status, check.precision) == (Status.PASSED, Precision.FLOAT32)


@pytest.mark.parametrize(
    ("rounding", "named"),
    [
        (bfloat16, Precision.BFLOAT16),
        (tf32, Precision.TF32),
        (float16, Precision.TF32),
        (tf32_truncated, Precision.TF32),
    ],
)
def test_reduced_inputs_are_found_and_named(rounding: Callable[[torch.Tensor], torch.Tensor], named: Precision) -> None:
    matmul = Matmul()
    check = verify([matmul.rounded(rounding)], matmul.expectation())
    assert (check.status, check.precision) == (Status.REDUCED_PRECISION, named)


def test_the_detail_of_reduced_precision_has_the_figures() -> None:
    matmul = Matmul()
    detail = verify([matmul.rounded(bfloat16)], matmul.expectation()).detail
    assert detail.startswith("The output has a relative error of 0.0024 against float64, which is the size that bfl")


@pytest.mark.parametrize("rounding", [bfloat16, tf32, tf32_truncated])
@pytest.mark.parametrize("distribution", ["own", "normal"])
def test_an_allowed_format_passes_with_its_tolerance(
    rounding: Callable[[torch.Tensor], torch.Tensor], distribution: str
) -> None:
    matmul = Matmul()
    matmul.distribution = distribution
    assert verify([matmul.rounded(rounding)], matmul.expectation(Precision.BFLOAT16)).passed


def test_float16_allowed_allows_tf32_which_errs_alike() -> None:
    matmul = Matmul()
    assert verify([matmul.rounded(tf32)], matmul.expectation(Precision.FLOAT16)).passed


def test_tf32_allowed_does_not_allow_bfloat16() -> None:
    matmul = Matmul()
    check = verify([matmul.rounded(bfloat16)], matmul.expectation(Precision.TF32))
    assert check.status is Status.REDUCED_PRECISION


def test_an_allowed_format_is_recorded_though_it_passed() -> None:
    matmul = Matmul()
    assert verify([matmul.rounded(tf32)], matmul.expectation(Precision.BFLOAT16)).precision is Precision.TF32


def test_one_wrong_element_is_no_number_format() -> None:
    matmul = Matmul()
    got = matmul.reference.clone()
    got[3, 3] += 10.0  # the relative error is bfloat16's
    check = verify([got], matmul.expectation())
    assert (check.status, check.precision) == (Status.WRONG_VALUES, None)


def test_an_even_error_too_large_for_any_format_is_wrong() -> None:
    matmul = Matmul()
    matmul.scale *= 1e6  # an elementwise bound that no error exceeds
    check = verify([matmul.reference * 1.05], matmul.expectation())
    assert (check.status, check.first_mismatches) == (Status.WRONG_VALUES, ())


def test_precision_is_not_judged_without_an_oracle() -> None:
    x = torch.randn(64, 64)
    check = verify([bfloat16(x)], plain(x, distribution="normal", tolerance=Tolerance(1e-2, 1e-2)))
    assert check.precision is None


def test_precision_is_not_judged_on_few_outputs() -> None:
    x = torch.randn(1023)
    expectation = Expectation("x", "normal", (x,), (x.double(),), (torch.tensor(1e3),), FLOAT32, zero_mean=True)
    assert verify([bfloat16(x)], expectation).precision is None


def test_precision_is_not_judged_where_inputs_are_not_zero_mean() -> None:
    matmul = Matmul()
    assert verify([matmul.reference], matmul.expectation(zero_mean=False)).precision is None


def test_a_reference_that_errs_itself_allows_as_much() -> None:
    oracle = torch.randn(4096, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    reference, got = (oracle * 1.00002).float(), (oracle * 1.0003).float()
    expectation = Expectation("x", "normal", (reference,), (oracle,), (torch.tensor(1e3),), FLOAT32, zero_mean=True)
    assert verify([got], expectation).precision is Precision.FLOAT32


def test_a_float64_problem_computed_in_float32_is_reduced() -> None:
    oracle = torch.randn(4096, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expectation = Expectation("x", "normal", (oracle,), (oracle,), None, FLOAT32, zero_mean=True)
    check = verify([oracle.float().double()], expectation)
    assert (check.status, check.precision) == (Status.REDUCED_PRECISION, Precision.FLOAT32)


def test_each_output_is_measured_against_its_own_format() -> None:
    matmul = Matmul()
    half = matmul.reference.half()
    expectation = Expectation(
        "x", "normal", (half, matmul.reference), (matmul.oracle, matmul.oracle), None, FLOAT32, zero_mean=True
    )
    check = verify([half, matmul.rounded(tf32)], expectation)
    assert (check.status, check.detail[:13]) == (Status.REDUCED_PRECISION, "Output 2 of 2")


def test_a_half_precision_problem_may_answer_in_half_precision() -> None:
    matmul = Matmul()
    expected = matmul.reference.half()
    expectation = Expectation(
        "x", "normal", (expected,), (matmul.oracle,), None, default_tolerance(torch.float16), zero_mean=True
    )
    check = verify([matmul.rounded(float16).half()], expectation)
    assert (check.status, check.precision) == (Status.PASSED, Precision.FLOAT16)


# Step 3: the problem's own inputs, against the reference.


def test_own_inputs_pass_within_the_tolerance() -> None:
    x = torch.full((10,), 100.0)
    assert verify([x + 0.009], plain(x)).passed


def test_own_inputs_fail_beyond_the_tolerance() -> None:
    x = torch.full((10,), 100.0)
    assert verify([x + 0.02], plain(x)).status is Status.WRONG_VALUES


def test_own_inputs_use_the_problem_s_tolerance() -> None:
    x = torch.full((10,), 100.0)
    assert verify([x + 0.02], plain(x, tolerance=Tolerance(0.0, 0.03))).passed


def test_own_zero_mean_inputs_do_not_flag_an_honest_sum_near_zero() -> None:
    generator = torch.Generator().manual_seed(0)
    oracle = 90 * torch.randn(4096, dtype=torch.float64, generator=generator)
    got = (oracle + 90 * 5e-6 * torch.randn(4096, dtype=torch.float64, generator=generator)).float()
    expectation = Expectation("x", "own", (oracle.float(),), (oracle,), None, FLOAT32, zero_mean=True)
    assert not torch.allclose(got, oracle.float(), 1e-4, 1e-4)
    assert verify([got], expectation).passed


def test_own_inputs_have_an_allowed_format_s_tolerance() -> None:
    x = torch.full((10,), 100.0)
    expectation = Expectation("x", "own", (x,), (x.double(),), None, FLOAT32, allowed_precision=Precision.TF32)
    results = [verify([x + error], expectation).passed for error in (0.5, 2.0)]
    assert results == [True, False]


def test_own_inputs_that_are_not_zero_mean_are_held_to_allclose() -> None:
    x = torch.tensor([1000.0, 0.0])
    expectation = Expectation("x", "own", (x,), (x.double(),), None, FLOAT32)
    assert verify([torch.tensor([1000.0, 0.05])], expectation).status is Status.WRONG_VALUES


@pytest.mark.parametrize("distribution", ["own", "normal"])
@pytest.mark.parametrize(("error", "passes"), [(1.2e-4, True), (2e-2, False)])
def test_an_output_about_as_near_to_float64_as_the_reference_is_right(
    distribution: str, error: float, passes: bool
) -> None:
    """The rounding errors of a deep network grow from layer to layer."""
    generator = torch.Generator().manual_seed(0)
    oracle, first, second = torch.randn(3, 4096, dtype=torch.float64, generator=generator).unbind()
    reference, got = (oracle + 1e-4 * first).float(), (oracle + error * second).float()
    expectation = Expectation("x", distribution, (reference,), (oracle,), None, FLOAT32, zero_mean=True)
    assert verify([got], expectation).passed is passes


@pytest.mark.parametrize("with_oracle", [True, False])
def test_zeros_are_wrong_however_small_the_answer_is(with_oracle: bool) -> None:
    x = torch.rand(2, 393216).softmax(dim=1)
    expectation = Expectation("x", "own", (x,), (x.double(),) if with_oracle else None, None, FLOAT32)
    check = verify([torch.zeros_like(x)], expectation)
    assert check.status is Status.WRONG_VALUES and "The whole output is zero" in check.detail


def test_one_wrong_element_of_a_small_answer_is_found() -> None:
    x = torch.full((4096,), 1e-6)
    got = x.clone()
    got[7] *= 1.01
    assert verify([got], plain(x)).first_mismatches[0].index == (7,)


def test_an_absolute_tolerance_that_the_problem_states_is_kept() -> None:
    x = torch.full((4096,), 1e-6)
    assert verify([2 * x], plain(x, tolerance=Tolerance(1e-4, 1e-4))).passed


def test_an_answer_of_zeros_keeps_the_absolute_tolerance() -> None:
    x = torch.zeros(64)
    assert verify([x + 1e-7], plain(x)).passed


def test_an_answer_that_is_rounding_error_may_be_other_rounding_error() -> None:
    """Such as the mean of a normalisation's output, which is zero in exact arithmetic."""
    generator = torch.Generator().manual_seed(0)
    oracle, first, second = torch.randn(3, 2048, dtype=torch.float64, generator=generator).unbind()
    expected, oracle = (1e-9 * first).float(), 1e-17 * oracle
    for distribution in ("own", "normal"):
        expectation = Expectation("x", distribution, (expected,), (oracle,), None, FLOAT32, zero_mean=True)
        results = [verify([(error * second).float()], expectation).passed for error in (1e-6, 1.0)]
        assert results == [True, False]


def test_an_even_error_is_wrong_from_a_hundredth_on_although_every_element_is_within_its_limit() -> None:
    x = torch.ones(4096).bfloat16()
    expectation = plain(x, tolerance=default_tolerance(torch.bfloat16))
    results = [verify([x * (1 + error)], expectation).passed for error in (0.0078125, 0.015625)]
    assert results == [True, False]


def test_a_reference_far_from_float64_allows_as_much() -> None:
    generator = torch.Generator().manual_seed(0)
    oracle, noise = torch.randn(2, 4096, dtype=torch.float64, generator=generator).unbind()
    reference = (oracle + 0.5 * noise).float()
    expectation = Expectation("x", "own", (reference,), (oracle,), None, FLOAT32)
    assert verify([reference.clone()], expectation).passed and verify([oracle.float()], expectation).passed


def test_a_column_of_large_numbers_does_not_loosen_the_limit_of_the_others() -> None:
    """As in a Fourier transform, whose first column has the sums. Every 64th number is in that column."""
    oracle = torch.randn(2**14, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    oracle[:, 0] = 1e6
    expectation = Expectation("x", "own", (oracle.float(),), (oracle,), None, FLOAT32)
    got = oracle.float()
    got[:, 1:] = 0

    assert verify([oracle.float()], expectation).passed
    assert verify([got], expectation).status is Status.WRONG_VALUES


# Step 4: every other distribution, against the oracle.


@pytest.mark.parametrize(("times", "passes"), [(1, True), (1.9, True), (2.2, False)])
def test_an_element_as_near_to_float64_as_the_reference_s_is_right(times: float, passes: bool) -> None:
    """x / norm(x) for a number that is far larger than all others: its element has all of the reference's error."""
    oracle = torch.rand(1 << 16, generator=torch.Generator().manual_seed(3)).double() * 1e-4
    oracle[7] = 0.93
    reference = oracle.float()
    reference[7] += 4e-3
    got = reference.clone()
    got[7] = float(oracle[7]) + times * 4e-3
    check = verify([got], Expectation("x", "outliers", (reference,), (oracle,), None, FLOAT32))
    assert check.passed is passes, check.detail


def test_an_element_is_held_to_its_scale() -> None:
    x, scale = torch.tensor([0.0, 0.0]), torch.tensor([1.0, 1000.0])
    expectation = Expectation("x", "scaled", (x,), (x.double(),), (scale,), FLOAT32)
    assert verify([torch.tensor([0.01, 0.01])], expectation).first_mismatches[0].index == (0,)


def test_within_the_scale_passes_where_allclose_would_not() -> None:
    x = torch.tensor([1000.0, 0.0])
    expectation = Expectation("x", "normal", (x,), (x.double(),), (torch.tensor(1000.0),), FLOAT32)
    assert verify([torch.tensor([1000.0, 0.05])], expectation).passed


def test_without_a_scale_the_rms_takes_its_place() -> None:
    x = torch.tensor([1000.0, 0.0])
    expectation = Expectation("x", "normal", (x,), (x.double(),), None, FLOAT32)
    errors = [verify([torch.tensor([1000.0, error])], expectation).passed for error in (0.09, 0.11)]
    assert errors == [True, False]  # the RMS of the elements that are not zero is 1000


def test_many_zeros_of_a_relu_do_not_make_the_others_smaller() -> None:
    oracle = (torch.randn(2**16, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) - 3.5).relu()
    got = torch.where(oracle > 0, oracle + 5e-6, 0.0).float()
    expectation = Expectation("x", "normal", (oracle.float(),), (oracle,), None, FLOAT32, zero_mean=True)
    assert verify([got], expectation).passed


def test_without_a_scale_an_element_far_above_the_rms_is_held_to_itself() -> None:
    x = torch.ones(4096)
    x[0] = 100.0
    expectation = Expectation("x", "normal", (x,), (x.double(),), None, FLOAT32)
    got = x.clone()
    got[0] += 5e-3
    assert verify([got], expectation).passed


def test_the_oracle_is_the_truth_not_the_reference() -> None:
    oracle = torch.full((4096,), 1000.0, dtype=torch.float64)
    reference = oracle.float()
    reference[7] += 1
    expectation = Expectation("x", "normal", (reference,), (oracle,), None, FLOAT32)
    assert verify([oracle.float()], expectation).passed
    assert verify([reference.roll(1)], expectation).first_mismatches[0].index == (8,)


def test_without_an_oracle_the_reference_takes_its_place() -> None:
    x = torch.full((10,), 1000.0)
    results = [verify([x + error], plain(x, distribution="normal")).passed for error in (0.05, 0.5)]
    assert results == [True, False]


@pytest.mark.parametrize("scale", [torch.inf, torch.nan])
def test_a_scale_that_overflowed_is_no_licence(scale: float) -> None:
    x = torch.ones(4)
    expectation = Expectation("x", "normal", (x,), (x.double(),), (torch.tensor(scale),), FLOAT32)
    results = [verify([x + error], expectation).passed for error in (0.5e-4, 1.0)]
    assert results == [True, False]


def test_integers_must_be_exact() -> None:
    matmul = Matmul("integers")
    got = matmul.reference.clone()
    got[5, 5] += 1 / 64
    assert verify([got], matmul.expectation(zero_mean=False)).status is Status.WRONG_VALUES


def test_integers_are_not_exact_where_the_reference_is_not() -> None:
    matmul = Matmul("integers")
    got = matmul.reference.clone()
    got[5, 5] += 1 / 64
    matmul.reference[0, 0] += 1 / 64
    assert verify([got], matmul.expectation(zero_mean=False)).passed


def test_integers_have_an_allowed_format_s_tolerance() -> None:
    matmul = Matmul("integers")
    got = bfloat16(matmul.reference)
    assert verify([got], matmul.expectation(Precision.BFLOAT16, zero_mean=False)).passed


# Kinds of tensors.


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.complex64, torch.int64, torch.bool])
def test_empty_outputs_pass(dtype: torch.dtype) -> None:
    x = torch.empty(0, 3, dtype=dtype)
    assert verify([x], plain(x)) == Check("a case", Status.PASSED)


@pytest.mark.parametrize("distribution", ["own", "normal", "integers"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_integer_outputs_are_exact(distribution: str, dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 1], dtype=dtype)
    results = [
        verify([got], plain(x, distribution=distribution, tolerance=Tolerance(1.0, 1.0))).passed
        for got in (x.clone(), torch.tensor([1, 1, 1], dtype=dtype))
    ]
    assert results == [True, False]


def test_integers_beyond_float64_are_exact() -> None:
    x = torch.tensor([2**62])
    assert verify([x + 1], plain(x)).status is Status.WRONG_VALUES


def test_complex_outputs_are_compared_by_distance() -> None:
    x = torch.tensor([100 + 0j, 0 + 100j])
    results = [verify([x + error], plain(x)).passed for error in (0.009, 0.02j)]
    assert results == [True, False]


@pytest.mark.parametrize(("got", "expected"), [("nan", "1+1j"), ("1+1j", "nan"), ("1+1j", "inf+1j")])
def test_complex_elements_are_finite_where_the_reference_s_are(got: str, expected: str) -> None:
    outputs, reference = torch.tensor([complex(got)]), torch.tensor([complex(expected)])
    assert verify([outputs], plain(reference)).status is Status.WRONG_VALUES


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bfloat16])
def test_narrow_outputs_are_explained(dtype: torch.dtype) -> None:
    x = torch.ones(3, 4).to(dtype)
    check = verify([torch.zeros(3, 4).to(dtype)], plain(x, tolerance=default_tolerance(dtype)))
    assert check.detail.endswith("The whole output is zero: did the kernel run, and did it write to the output?")


def test_a_scalar_output() -> None:
    assert verify([torch.tensor(2.0)], plain(torch.tensor(1.0))).first_mismatches == (Mismatch((), 2.0, 1.0),)


def test_negative_zero_is_zero() -> None:
    matmul = Matmul("integers")
    matmul.reference.zero_()
    matmul.oracle.zero_()
    assert verify([-matmul.reference], matmul.expectation()).passed


def test_a_zero_answer_is_wrong_by_more_than_the_smallest_number() -> None:
    x = torch.zeros(2048)
    expectation = Expectation("x", "normal", (x,), (x.double(),), None, FLOAT32, zero_mean=True)
    results = [verify([x + error], expectation).passed for error in (1e-40, 1e-30)]
    assert results == [True, False]


def test_large_numbers_have_a_finite_error() -> None:
    x = torch.full((2048,), 1e300, dtype=torch.float64)
    check = verify([x * (1 + 1e-3)], plain(x))
    assert check.relative_error == pytest.approx(1e-3)


def test_a_non_contiguous_output_passes() -> None:
    x = torch.randn(5, 7)
    assert verify([x.T.contiguous().T], plain(x)).passed


def test_outputs_larger_than_a_chunk_are_compared_to_the_end() -> None:
    x = torch.zeros((1 << 20) + 3)
    got = x.clone()
    got[-1] = 1.0
    assert verify([got], plain(x)).first_mismatches == (Mismatch(((1 << 20) + 2,), 1.0, 0.0),)


# What a Check says.


def test_a_wrong_answer_is_explained() -> None:
    x = torch.arange(1.0, 65.0).reshape(8, 8)
    got = x.clone()
    got[:, 4:] = 0
    assert verify([got], plain(x)).detail == (
        "The output: 32 of 64 elements wrong, the first at [0, 4]: got 0, expected 5. "
        "Every wrong element is 0; the wrong elements fill "
        "the last 4 of 8 columns, from 4 on: the tail after whole tiles of 4."
    )


def test_errors_are_the_largest_of_all_outputs() -> None:
    x = torch.full((10,), 100.0)
    check = verify([x, x + 0.004], plain(x, x))
    assert check.max_abs_error == pytest.approx(0.004, rel=1e-3)


def test_the_first_wrong_output_is_named() -> None:
    x = torch.ones(3)
    assert verify([x, x + 1], plain(x, x)).detail.startswith("Output 2 of 2: 3 of 3 elements wrong")


def test_an_oracle_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="other shapes"):
        Expectation("x", "own", (torch.ones(3),), (torch.ones(4),), None, FLOAT32)


def test_a_missing_oracle_is_told_with_its_reason() -> None:
    x = torch.ones(3)
    expectation = Expectation("x", "normal", (x,), None, None, FLOAT32, oracle_missing="no float64")
    assert verify([x], expectation).unchecked == "precision was not checked: no float64"


@pytest.mark.parametrize(("sizes", "told"), [((1023, 3), True), ((1024, 3), False)])
def test_outputs_that_are_all_too_small_to_show_a_precision_are_told(sizes: tuple[int, ...], told: bool) -> None:
    outputs = tuple(torch.ones(size) for size in sizes)
    expectation = Expectation("x", "normal", outputs, tuple(x.double() for x in outputs), None, FLOAT32)
    said = "precision was not checked: outputs of fewer than 1024 elements do not show their number format"
    assert verify(list(outputs), expectation).unchecked == (said if told else "")


def test_integer_outputs_have_no_precision_to_check() -> None:
    x = torch.arange(3)
    expectation = Expectation("x", "normal", (x,), None, None, FLOAT32, oracle_missing="no float64")
    assert verify([x], expectation).unchecked == ""


def test_an_oracle_with_a_reason_for_its_absence_is_refused() -> None:
    x = torch.ones(3)
    with pytest.raises(ValueError, match="there is an oracle"):
        Expectation("x", "own", (x,), (x.double(),), None, FLOAT32, oracle_missing="no float64")


@pytest.mark.parametrize("scale", [(torch.ones(4),), (torch.ones(2, 3),), ()])
def test_a_scale_that_does_not_fit_is_refused(scale: tuple[torch.Tensor, ...]) -> None:
    with pytest.raises(ValueError, match="error_scale"):
        Expectation("x", "own", (torch.ones(3),), None, scale, FLOAT32)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        (torch.float32, 1e-4),
        (torch.float64, 1e-4),
        (torch.complex64, 1e-4),
        (torch.float16, 1e-2),
        (torch.bfloat16, 1e-2),
        (torch.int32, 0.0),
        (torch.bool, 0.0),
    ],
)
def test_default_tolerances(dtype: torch.dtype, size: float) -> None:
    assert default_tolerance(dtype) == Tolerance(size, size, follows_scale=size > 0)


# Step 5: the same input twice, and inputs unchanged.


def test_the_same_answer_twice_passes() -> None:
    x = torch.randn(100)
    assert same([x], [x.clone()], FLOAT32, "x").passed


def test_another_order_of_summation_is_not_nondeterminism() -> None:
    x = torch.tensor([100.0, 0.0])
    assert same([x], [torch.tensor([100.0, 0.005])], FLOAT32, "x").passed


def test_another_answer_the_second_time() -> None:
    x = torch.full((10,), 100.0)
    check = same([x], [x + 1], FLOAT32, "x")
    assert check.status is Status.NONDETERMINISTIC
    assert check.detail.startswith("The second call with the same input gave a different answer. ")


@pytest.mark.parametrize(("first", "second"), [(1.0, torch.nan), (torch.nan, 1.0), (torch.inf, 1.0)])
def test_another_non_finite_element_the_second_time(first: float, second: float) -> None:
    check = same([torch.tensor([first])], [torch.tensor([second])], FLOAT32, "x")
    assert check.status is Status.NONDETERMINISTIC


def test_another_shape_the_second_time() -> None:
    assert same([torch.ones(2)], [torch.ones(3)], FLOAT32, "x").status is Status.NONDETERMINISTIC


def test_integer_outputs_repeat_exactly() -> None:
    x = torch.tensor([1000])
    assert same([x], [x + 1], Tolerance(1.0, 1.0), "x").status is Status.NONDETERMINISTIC


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.bool, torch.int8])
@pytest.mark.parametrize("shape", [(), (0, 3), (4, 5)])
def test_equal_inputs_are_unchanged(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = torch.ones(shape, dtype=dtype)
    assert unchanged(x, x.clone())


def test_one_changed_bit_is_a_change() -> None:
    assert not unchanged(torch.tensor([0.0]), torch.tensor([-0.0]))


def test_a_nan_is_not_a_change() -> None:
    x = torch.tensor([torch.nan])
    assert unchanged(x, x.clone())


def test_another_dtype_of_equal_bytes_is_a_change() -> None:
    x = torch.ones(3)
    assert not unchanged(x, x.view(torch.int32))


def test_bytes_are_compared() -> None:
    assert (unchanged(b"ab", b"ab"), unchanged(b"ab", b"aB")) == (True, False)


# Invariants.

floats = st.floats(width=32, allow_nan=True, allow_infinity=True)


@settings(max_examples=80)
@given(
    values=st.lists(floats, min_size=1, max_size=40),
    distribution=st.sampled_from(["own", "normal", "integers"]),
)
def test_an_exact_answer_always_passes(values: list[float], distribution: str) -> None:
    x = torch.tensor(values)
    expectation = Expectation("x", distribution, (x,), (x.double(),), None, FLOAT32, zero_mean=True)
    assert verify([x.clone()], expectation).passed


@settings(max_examples=80)
@given(
    values=st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40),
    data=st.data(),
    distribution=st.sampled_from(["own", "normal", "integers"]),
)
def test_one_element_off_by_more_than_everything_is_always_found(
    values: list[float], data: st.DataObject, distribution: str
) -> None:
    x = torch.tensor(values)
    where = data.draw(st.integers(0, len(values) - 1))
    got = x.clone()
    got[where] += 1e5 + 0.1 * float(x.abs().max())
    expectation = Expectation("x", distribution, (x,), (x.double(),), None, FLOAT32)
    check = verify([got], expectation)
    assert [m.index for m in check.first_mismatches] == [(where,)]


def test_finite_wrong_elements_count_beside_some_that_are_nan() -> None:
    expected = torch.arange(1.0, 65).reshape(8, 8)
    got = 2 * expected + 1
    got[3, :2] = torch.nan
    check = verify([got], Expectation("c", "own", (expected,), None, None, Tolerance(1e-4, 1e-4), False, None))

    assert check.status is Status.WRONG_VALUES
    assert "64 of 64 elements wrong" in check.detail and "2 of the wrong elements are NaN or infinite." in check.detail
    assert "very wrong element is NaN" not in check.detail


class PairNorm:
    """GroupNorm over two numbers each: where the two are nearly equal, it multiplies their rounding errors."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.x, self.weight = (
            torch.randn(256, 512, generator=generator),
            torch.randn(512, 512, generator=generator) / 23,
        )
        self.oracle = self.norm(self.x.double() @ self.weight.double())
        self.expectation = Expectation(
            "x", "normal", (self.norm(self.x @ self.weight),), (self.oracle,), None, FLOAT32, zero_mean=True
        )

    @staticmethod
    def norm(values: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.group_norm(values, 256)

    def in_another_order(self) -> torch.Tensor:
        """An honest answer in float32: the sums of the product are added in another order."""
        halves = (self.x[:, part] @ self.weight[part] for part in (slice(0, 100), slice(100, 512)))
        return self.norm(sum(halves, torch.zeros(256, 512)))


@pytest.mark.parametrize("seed", range(8))
def test_ill_conditioned_elements_may_be_as_far_off_as_those_of_the_reference(seed: int) -> None:
    problem = PairNorm(seed)
    check = verify([problem.in_another_order()], problem.expectation)
    assert check.passed, check.detail


def test_an_element_that_is_well_conditioned_may_not_be_far_off() -> None:
    problem = PairNorm(0)
    right = problem.in_another_order()
    wrong = right.clone()
    wrong[17, 3] += 0.5
    assert verify([wrong], problem.expectation).status is Status.WRONG_VALUES
    several = right.clone()
    several[5, :200] *= 1.001
    assert verify([several], problem.expectation).status is Status.WRONG_VALUES


def test_the_reference_s_tail_allows_nothing_where_there_is_none() -> None:
    matmul = Matmul()
    wrong = matmul.reference.clone()
    wrong[3, 4] += 0.02 * matmul.reference.abs().max()
    assert verify([wrong], matmul.expectation()).status is Status.WRONG_VALUES


def running_sums(rows: int = 256, columns: int = 4000) -> tuple[torch.Tensor, Expectation]:
    """Running sums of random numbers, each row added in one chain in float32, and torch's, which it adds in float64."""
    numbers = torch.randn(rows, columns, generator=torch.Generator().manual_seed(0))
    oracle = numbers.double().cumsum(1)
    total, sums = torch.zeros(rows), torch.empty(rows, columns)
    for i in range(columns):
        total = total + numbers[:, i]
        sums[:, i] = total
    return sums, Expectation("x", "own", (oracle.float(),), (oracle,), None, default_tolerance(torch.float32))


def test_running_sums_that_come_near_zero_may_be_added_in_one_chain() -> None:
    sums, expectation = running_sums()
    allclose = torch.isclose(sums, expectation.expected[0], rtol=1e-4, atol=1e-4)
    assert not allclose.all()
    check = verify([sums], expectation)
    assert check.passed, check.detail


@pytest.mark.parametrize("at", [(), (5, 7)], ids=["everywhere", "at one element near zero"])
def test_running_sums_may_not_be_off_by_more(at: tuple[int, ...]) -> None:
    sums, expectation = running_sums()
    nearest = int(expectation.expected[0].abs().argmin())
    if at:
        sums.view(-1)[nearest] += 2e-3
    else:
        sums = sums.bfloat16().float()
    assert not verify([sums], expectation).passed


def test_a_few_large_elements_excuse_no_small_ones() -> None:
    oracle = torch.rand(64, 64, generator=torch.Generator().manual_seed(0)).double() + 1
    oracle[0] *= 1e12
    wrong = oracle.float()
    wrong[5, 5] += 0.01
    expectation = Expectation("x", "own", (oracle.float(),), (oracle,), None, default_tolerance(torch.float32))
    assert verify([oracle.float()], expectation).passed
    assert verify([wrong], expectation).status is Status.WRONG_VALUES
