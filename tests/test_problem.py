"""A problem file at the shape somebody asks for: constants replaced, inputs drawn, KernelBench's own files read."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from kernel_harness.problem import Problem, ProblemError, load, shape_text

PROBLEMS = Path(__file__).resolve().parent.parent / "problems"

OWN = """
import torch
M, K, N = 4, 6, 8
TILE = 2
BLOCKS = M // TILE
RATE = 0.5
NAME = "x"
CHECK_SHAPES = [dict(M=1), dict(M=3, K=5)]
CPU_SHAPE = dict(M=2)
TOLERANCE = dict(rtol=1e-2, atol=1e-3)
STRESS = {"normal": {}, "integers": {"limit": K}, "scaled": {"log2_range": 4}}

class Model(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.weight = torch.nn.Parameter(torch.randn(N))

    def forward(self, x, count):
        return x * self.weight * self.scale

def get_inputs():
    return [torch.rand(M, N), 3]

def get_init_inputs():
    return [2.0]

def flops():
    return M * N
"""

# As files of KernelBench are written.
KERNEL_BENCH = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super(Model, self).__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.relu(self.linear(x))

batch_size = 16
in_features = 32
out_features = in_features * 2

def get_inputs():
    return [torch.rand(batch_size, in_features)]

def get_init_inputs():
    return [in_features, out_features]
"""


def problem(tmp_path: Path, source: str) -> Problem:
    path = tmp_path / "p.py"
    path.write_text(source)
    return load("p", path)


# -------------------------------------------------------------------------------------------- shapes


def test_the_shape_is_the_numbers_that_the_file_assigns(tmp_path):
    assert dict(problem(tmp_path, OWN).shape) == {"M": 4, "K": 6, "N": 8, "TILE": 2}


def test_constants_of_a_tuple_are_replaced_one_by_one(tmp_path):
    at = problem(tmp_path, OWN).at({"K": 60, "M": 10})
    assert (at.module.M, at.module.K, at.module.N) == (10, 60, 8)
    assert dict(at.shape) == {"M": 10, "K": 60, "N": 8, "TILE": 2}


def test_what_is_derived_from_a_constant_follows_it(tmp_path):
    at = problem(tmp_path, OWN).at({"M": 10, "K": 60})
    assert at.module.BLOCKS == 5
    assert at.stress["integers"]["limit"] == 60
    assert at.number("flops") == 80
    assert at.inputs(1)[0].shape == (10, 8)


def test_a_derived_constant_can_be_replaced_too(tmp_path):
    at = problem(tmp_path, OWN).at({"BLOCKS": 7})
    assert at.module.BLOCKS == 7 and at.module.M == 4


def test_a_problem_at_a_shape_leaves_the_first_one_as_it_was(tmp_path):
    first = problem(tmp_path, OWN)
    first.at({"M": 10})
    assert first.inputs(1)[0].shape == (4, 8) and first.number("flops") == 32


def test_shapes_add_up(tmp_path):
    at = problem(tmp_path, OWN).at({"M": 10}).at({"K": 3})
    assert (at.module.M, at.module.K) == (10, 3)


def test_no_shape_is_the_problem_itself(tmp_path):
    first = problem(tmp_path, OWN)
    assert first.at({}) is first


def test_the_text_is_a_module_of_the_same_shape(tmp_path):
    at = problem(tmp_path, OWN).at({"M": 10})
    namespace: dict[str, object] = {}
    exec(at.text, namespace)
    assert (namespace["M"], namespace["N"], namespace["BLOCKS"]) == (10, 8, 5)
    assert problem(tmp_path, OWN).text == OWN


@pytest.mark.parametrize(
    ("wanted", "words"),
    [({"TILES": 1}, "TILES; did you mean TILE"), ({"QQ": 1}, "QQ; it has M, K, N, TILE")],
)
def test_a_constant_that_does_not_exist_is_refused_with_a_suggestion(tmp_path, wanted, words):
    with pytest.raises(ProblemError, match=words):
        problem(tmp_path, OWN).at(wanted)


def test_a_shape_is_said_as_the_command_takes_it():
    assert shape_text({"M": 64, "K": 128}) == "M=64,K=128"


# ------------------------------------------------------------------------------ what a file leaves out


def test_a_file_of_kernel_bench_is_read_unchanged(tmp_path):
    bench = problem(tmp_path, KERNEL_BENCH)
    assert dict(bench.shape) == {"batch_size": 16, "in_features": 32}
    assert bench.model("cpu")(*bench.inputs(1)).shape == (16, 64)


def test_constants_of_kernel_bench_are_replaced_and_its_model_rebuilt(tmp_path):
    bench = problem(tmp_path, KERNEL_BENCH).at({"batch_size": 3, "in_features": 5})
    assert bench.init_inputs() == [5, 10]
    assert bench.model("cpu")(*bench.inputs(1)).shape == (3, 10)


def test_what_is_optional_is_absent_in_a_file_of_kernel_bench(tmp_path):
    bench = problem(tmp_path, KERNEL_BENCH)
    assert (bench.cpu_shape, bench.check_shapes, bench.stress) == ({}, [], {})
    assert bench.number("flops") is None and bench.error_scale(bench.inputs(1)) is None


def test_a_file_without_get_init_inputs_has_none(tmp_path):
    source = "class Model: pass\ndef get_inputs(): return []\n"
    assert problem(tmp_path, source).init_inputs() == []


def test_threads_that_draw_at_once_draw_the_same(tmp_path):
    """Candidates are started side by side, and torch has one generator for all."""
    source = KERNEL_BENCH.replace("return [in_features, out_features]", "return [torch.randn(500) for _ in range(20)]")
    drawn = problem(tmp_path, source).init_inputs
    expected = torch.cat(drawn())
    with ThreadPoolExecutor(8) as pool:
        assert all(torch.equal(torch.cat(found), expected) for found in pool.map(lambda _: drawn(), range(200)))


def test_the_tolerance_is_the_file_s_own_or_the_dtype_s(tmp_path):
    own = problem(tmp_path, OWN).tolerance(torch.float32)
    assert (own.rtol, own.atol) == (1e-2, 1e-3)
    bench = problem(tmp_path, KERNEL_BENCH)
    assert (bench.tolerance(torch.float32).rtol, bench.tolerance(torch.float16).rtol) == (1e-4, 1e-2)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("x = (\n", r"p\.py:1: "),
        ("x = 1\ny = x +\n", r"p\.py:2: "),
        ("def get_inputs(): pass\n", "defines no Model"),
        ("class Model: pass\n", "defines no get_inputs"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("import no_such_module\n", "no_such_module"),
    ],
)
def test_a_file_that_is_no_problem_is_refused_in_words(tmp_path, source, words):
    with pytest.raises(ProblemError, match=words):
        problem(tmp_path, source)


def test_a_file_that_does_not_exist_is_refused_with_its_path(tmp_path):
    with pytest.raises(ProblemError, match=r"nowhere\.py"):
        load("nowhere", tmp_path / "nowhere.py")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00x", b"x = 1\x00"])
def test_a_file_that_is_no_text_is_refused_with_its_path(tmp_path, content):
    (tmp_path / "p.py").write_bytes(content)
    with pytest.raises(ProblemError, match=r"p\.py"):
        load("p", tmp_path / "p.py")


def test_a_shape_that_the_file_cannot_take_is_refused(tmp_path):
    with pytest.raises(ProblemError, match="ZeroDivisionError"):
        problem(tmp_path, OWN).at({"TILE": 0})


# ------------------------------------------------------------------------------------ inputs and weights


@pytest.mark.parametrize("distribution", ["own", "normal", "integers", "scaled"])
def test_the_same_seed_draws_the_same_inputs_and_another_seed_others(tmp_path, distribution):
    p = problem(tmp_path, OWN)
    first, again, other = (p.inputs(seed, distribution)[0] for seed in (5, 5, 6))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_the_same_seed_draws_other_inputs_from_each_distribution(tmp_path):
    p = problem(tmp_path, OWN)
    drawn = [p.inputs(5, d)[0] for d in ("own", "normal", "integers", "scaled")]
    assert not any(torch.equal(a, b) for i, a in enumerate(drawn) for b in drawn[:i])


@pytest.mark.parametrize("distribution", ["normal", "integers", "scaled"])
def test_another_distribution_keeps_shapes_types_and_what_is_no_float(tmp_path, distribution):
    source = OWN.replace("[torch.rand(M, N), 3]", "[torch.rand(M, N, dtype=torch.float16), torch.arange(4), 3]")
    p = problem(tmp_path, source)
    x, indices, number = p.inputs(1, distribution)
    assert (x.shape, x.dtype) == ((4, 8), torch.float16)
    assert torch.equal(indices, torch.arange(4)) and number == 3


def test_integers_reach_their_limit_on_both_sides_and_no_further(tmp_path):
    x = problem(tmp_path, OWN).at({"M": 1000, "K": 3}).inputs(1, "integers")[0]
    assert torch.equal(x, x.round())
    assert sorted(set(x.flatten().tolist())) == [-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0]


def test_scaled_inputs_spread_over_powers_of_two_by_row_and_column(tmp_path):
    x = problem(tmp_path, OWN).at({"M": 200, "N": 200}).inputs(1, "scaled")[0]
    rows, columns = (x.square().mean(dim).sqrt().log2() for dim in (1, 0))
    for sizes in (rows, columns):
        assert sizes.max() - sizes.min() > 4 / math.sqrt(2)


def test_normal_inputs_are_centred(tmp_path):
    x = problem(tmp_path, OWN).at({"M": 200, "N": 200}).inputs(1, "normal")[0]
    assert abs(x.mean()) < 0.05 and abs(x.std() - 1) < 0.05


def test_a_model_has_the_same_weights_each_time_it_is_made(tmp_path):
    p = problem(tmp_path, OWN)
    torch.manual_seed(1)
    first = p.model("cpu").weight
    torch.manual_seed(2)
    assert torch.equal(first, p.model("cpu").weight)


@pytest.mark.parametrize("name", ["matmul_tt", "matmul_tt_relu"])
def test_the_shipped_problems_can_be_had_at_every_shape_they_ask_to_be_checked_at(name):
    p = load(name, PROBLEMS / f"{name}.py")
    for shape in [p.cpu_shape, *p.check_shapes]:
        at = p.at(shape)
        a, b = at.inputs(1)
        assert a.shape == (shape["K"], shape["M"]) and b.shape == (shape["N"], shape["K"])
