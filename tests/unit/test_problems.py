"""The shipped problem files: the references, the declared figures, and the shapes to check."""

from __future__ import annotations

import math
import runpy
from typing import Any

import pytest
import torch
from support.command import ROOT

PROBLEMS = ROOT / "problems"
NAMES = ["matmul_tt", "matmul_tt_relu"]
CONSTANTS = "M, K, N = 2048, 8192, 4096"


def load(name: str) -> dict[str, Any]:
    return runpy.run_path(str(PROBLEMS / f"{name}.py"))


def load_at(name: str, M: int, K: int, N: int) -> dict[str, Any]:
    """Executes the problem's source with its constants replaced."""
    source = (PROBLEMS / f"{name}.py").read_text()
    assert source.count(CONSTANTS) == 1
    namespace: dict[str, Any] = {"__name__": name}
    exec(source.replace(CONSTANTS, f"M, K, N = {M}, {K}, {N}"), namespace)
    return namespace


def normal_inputs(problem: dict[str, Any], seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(x.shape, generator=generator) for x in problem["get_inputs"]()]


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_inputs_have_the_documented_shapes_on_the_cpu_in_float32(name):
    A, B = load_at(name, M=3, K=5, N=7)["get_inputs"]()
    assert (A.shape, B.shape) == ((5, 3), (7, 5))
    assert A.dtype == B.dtype == torch.float32
    assert A.device.type == B.device.type == "cpu"
    assert A.is_contiguous() and B.is_contiguous()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("matmul_tt", [[-26.0, -2.0]]), ("matmul_tt_relu", [[0.0, 0.0]])],
    indirect=["name"],
)
def test_the_reference_on_numbers_worked_by_hand(name, expected):
    A = torch.tensor([[1.0], [-2.0], [3.0]])
    B = torch.tensor([[-1.0, 5.0, -5.0], [3.0, 1.0, -1.0]])
    problem = load(name)
    assert problem["Model"](*problem["get_init_inputs"]())(A, B).tolist() == expected


def test_relu_keeps_what_is_positive():
    A, B = torch.tensor([[1.0, -1.0]]), torch.tensor([[2.0], [-3.0]])
    assert load("matmul_tt_relu")["Model"]()(A, B).tolist() == [[2.0, 0.0], [0.0, 3.0]]


def test_work_at_the_problems_own_size():
    plain, relu = load("matmul_tt"), load("matmul_tt_relu")
    assert plain["flops"]() == 137_438_953_472
    assert relu["flops"]() == plain["flops"]() + 2048 * 4096
    for problem in (plain, relu):
        assert problem["bytes_moved"]() == 2**26 + 2**27 + 2**25
        assert problem["min_bytes"]() == 2**26 + 2**27


def test_work_follows_the_replaced_constants(name):
    problem = load_at(name, M=2, K=3, N=5)
    assert problem["flops"]() in (60, 70)
    assert problem["bytes_moved"]() == 4 * (6 + 15 + 10)
    assert problem["min_bytes"]() == 4 * (6 + 15)


def test_figures_are_whole_numbers(name):
    problem = load(name)
    assert {type(problem[f]()) for f in ("flops", "bytes_moved", "min_flops", "min_bytes")} == {int}


@pytest.mark.parametrize(
    ("shape", "products"),
    [
        pytest.param((2, 2, 2), 7, id="Strassen"),
        pytest.param((2, 3, 3), 15, id="Hopcroft and Kerr"),
        pytest.param((3, 3, 3), 23, id="Laderman"),
        pytest.param((3, 6, 3), 40, id="Smirnov"),
        pytest.param((4, 4, 4), 47, id="AlphaTensor, modulo 2"),
        pytest.param((44, 44, 44), 36133, id="Laderman, Pan and Sha"),
        pytest.param((2048, 2048, 2048), 7**11, id="Strassen, recursed to scalars"),
    ],
)
def test_min_flops_flags_no_known_fast_algorithm(name, shape, products):
    M, K, N = shape
    problem = load_at(name, M, K, N)
    assert problem["min_flops"]() <= products


def test_min_flops_is_the_definition_where_nothing_can_be_saved(name):
    assert load_at(name, M=1, K=300, N=400)["min_flops"]() == 300 * 400


def test_minima_stay_below_the_plain_counts_at_every_shape(name):
    own = load(name)
    for shape in [*own["CHECK_SHAPES"], own["CPU_SHAPE"]]:
        problem = load_at(name, **shape)
        assert 0 < problem["min_flops"]() <= problem["flops"]()
        assert 0 < problem["min_bytes"]() <= problem["bytes_moved"]()


def test_check_shapes_hold_every_kind_of_awkward_size(name):
    shapes = [(s["M"], s["K"], s["N"]) for s in load(name)["CHECK_SHAPES"]]
    sizes = {size for shape in shapes for size in shape}
    assert (1, 1, 1) in shapes
    assert (7, 13, 11) in shapes, "primes only"
    assert any(K == 1 and M > 1 and N > 1 for M, K, N in shapes)
    assert {31, 33, 127, 129} <= sizes, "one off a tile's multiple"
    assert any(M > 1000 * N for M, _, N in shapes), "tall"
    assert any(N > 65535 for _, _, N in shapes), "beyond the y and z dimensions of a grid"
    assert len({tuple(sorted(shape)) for shape in shapes}) == len(shapes), "each shape is another"


def test_check_shapes_are_cheap_to_emulate(name):
    for shape in load(name)["CHECK_SHAPES"]:
        assert shape["M"] * shape["N"] <= 150_000
        assert math.prod(shape.values()) <= 1_100_000


def test_integer_cases_have_exact_sums_at_every_shape(name):
    own = load(name)
    assert own["STRESS"]["integers"]["limit"] == 8
    for shape in [*own["CHECK_SHAPES"], dict(M=2, K=2**20, N=2), dict(M=2, K=10**6 + 3, N=2)]:
        limit = load_at(name, **shape)["STRESS"]["integers"]["limit"]
        assert 1 <= limit <= 8
        assert shape["K"] * limit**2 <= 2**24
        assert limit == 8 or shape["K"] * (limit + 1) ** 2 > 2**24


def test_error_scale_is_the_product_of_magnitudes_in_the_inputs_dtype(name):
    problem = load_at(name, M=4, K=6, N=5)
    A, B = normal_inputs(problem, seed=1)
    for dtype in (torch.float32, torch.float64):
        scale = problem["error_scale"](A.to(dtype), B.to(dtype))
        assert scale.dtype == dtype
        torch.testing.assert_close(scale, torch.einsum("km,nk->mn", A.abs(), B.abs()).to(dtype))


@pytest.mark.parametrize("log2_range", [0, 10])
def test_the_float32_reference_stays_within_the_error_scale(name, log2_range):
    problem = load_at(name, M=64, K=2048, N=48)
    A, B = normal_inputs(problem, seed=2)
    powers = torch.Generator().manual_seed(3)
    A *= 2.0 ** torch.randint(-log2_range, log2_range + 1, (1, 64), generator=powers)
    B *= 2.0 ** torch.randint(-log2_range, log2_range + 1, (48, 1), generator=powers)
    model = problem["Model"]()
    error = (model(A, B).double() - model(A.double(), B.double())).abs()
    # A chain of K roundings is off by at most about K * 2^-24; real sums stay far below.
    assert (error <= 1e-5 * problem["error_scale"](A.double(), B.double())).all()


def test_inputs_rounded_to_bfloat16_miss_the_tolerance(name):
    problem = load_at(name, M=16, K=256, N=16)
    A, B = problem["get_inputs"]()
    expected = problem["Model"]()(A, B)
    rounded = problem["Model"]()(A.bfloat16().float(), B.bfloat16().float())
    assert not torch.allclose(rounded, expected, **problem["TOLERANCE"])
