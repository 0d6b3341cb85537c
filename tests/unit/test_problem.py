"""Problem files: constants are replaced, inputs drawn, and KernelBench's own files read unchanged."""

from __future__ import annotations

import argparse
import math
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from support.command import ROOT

from kernel_harness.cli import arguments
from kernel_harness.problem.errors import ProblemError
from kernel_harness.problem.problem import Problem, load, shape_text

PROBLEMS = ROOT / "problems"

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

# In the form of a KernelBench file.
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
    [({"TILES": 1}, "TILES; did you mean TILE"), ({"QQ": 1}, "QQ; the file has M, K, N, TILE")],
)
def test_a_constant_that_does_not_exist_is_refused_with_a_suggestion(tmp_path, wanted, words):
    with pytest.raises(ProblemError, match=words):
        problem(tmp_path, OWN).at(wanted)


def test_a_shape_is_written_as_the_command_takes_it():
    assert shape_text({"M": 64, "K": 128}) == "M=64,K=128"


# ------------------------------------------------------------------------------ what a file omits


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
    assert (bench.cpu_shape, bench.check_shapes, bench.states("STRESS")) == ({}, [], False)
    assert bench.number("flops") is None and not bench.states("error_scale")


def test_a_file_without_get_init_inputs_has_none(tmp_path):
    source = "class Model: pass\ndef get_inputs(): return []\n"
    assert problem(tmp_path, source).init_inputs() == []


def test_threads_that_draw_at_once_draw_the_same(tmp_path):
    """Candidates are started in parallel, and all threads share torch's global generator."""
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
def test_a_file_that_is_no_problem_is_refused_with_a_reason(tmp_path, source, words):
    with pytest.raises(ProblemError, match=words):
        problem(tmp_path, source)


def test_a_file_that_does_not_exist_is_refused_with_its_path(tmp_path):
    with pytest.raises(ProblemError, match=r"nowhere\.py"):
        load("nowhere", tmp_path / "nowhere.py")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00x", b"x = 1\x00"])
def test_a_file_that_is_not_text_is_refused_with_its_path(tmp_path, content):
    (tmp_path / "p.py").write_bytes(content)
    with pytest.raises(ProblemError, match=r"p\.py"):
        load("p", tmp_path / "p.py")


def test_a_shape_that_the_file_cannot_take_is_refused(tmp_path):
    with pytest.raises(ProblemError, match="ZeroDivisionError"):
        problem(tmp_path, OWN).at({"TILE": 0})


@pytest.mark.parametrize("shape", [{"batch_size": 0}, {"out_features": 0}, {"in_features": 0, "out_features": 8}])
def test_a_shape_that_leaves_an_input_or_an_output_empty_is_refused(tmp_path, shape):
    with pytest.raises(ProblemError, match="an input or an output has no elements"):
        problem(tmp_path, KERNEL_BENCH).at(shape).check_inputs()


def test_a_zero_that_leaves_every_tensor_with_elements_is_not_refused(tmp_path):
    padded = KERNEL_BENCH.replace("self.linear(x)", "torch.nn.functional.pad(x, (0, padding))") + "padding = 1"
    problem(tmp_path, padded).at({"padding": 0}).check_inputs()


@pytest.mark.parametrize(
    "more",
    [
        "CHECK_SHAPES = [dict(batch_size=0)]",
        "CPU_SHAPE = dict(batch_size=0)",
        "def get_inputs():\n    return [torch.rand(4, 0)]",
        "batch_size = 0",
    ],
)
def test_an_empty_input_that_the_file_itself_has_is_not_refused(tmp_path, more):
    problem(tmp_path, KERNEL_BENCH + more).at({"batch_size": 0, "in_features": 3}).check_inputs()


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
def test_the_shipped_problems_have_inputs_at_every_shape_to_check(name):
    p = load(name, PROBLEMS / f"{name}.py")
    for shape in [p.cpu_shape, *p.check_shapes]:
        at = p.at(shape)
        a, b = at.inputs(1)
        assert a.shape == (shape["K"], shape["M"]) and b.shape == (shape["N"], shape["K"])


# ------------------------------------------------------------------------- the caller's random generators

DRAWS = """
import torch

OFFSET = torch.randn(())

class Model(torch.nn.Module):
    def __init__(self, start):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.nn.functional.dropout(self.linear(x))

def get_inputs():
    return [torch.rand(2, 4)]

def get_init_inputs():
    return [torch.randn(())]
"""


@pytest.mark.parametrize(
    "use",
    [
        lambda p: p.inputs(5),
        lambda p: p.inputs(5, "normal"),
        lambda p: p.init_inputs(),
        lambda p: p.model("cpu"),
        lambda p: p.forward(p.model("cpu"), p.inputs(5)),
        lambda p: load(p.name, p.path),
    ],
    ids=["inputs", "redrawn", "init_inputs", "model", "forward", "load"],
)
def test_the_caller_s_generator_is_as_before(tmp_path, use):
    """`evaluate` is called from training loops, which draw from the same generator."""
    p = problem(tmp_path, DRAWS + "STRESS = {'normal': {}}\n")
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    use(p)
    assert torch.equal(torch.rand(3), expected)


def test_the_caller_s_generator_is_as_before_when_the_file_raises(tmp_path):
    p = problem(tmp_path, DRAWS.replace("return [torch.rand(2, 4)]", "return 1 / 0"))
    before = torch.get_rng_state()
    with pytest.raises(ProblemError, match="ZeroDivisionError"):
        p.inputs(5)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_seed_for_the_cpu_is_not_queued_for_a_later_start_of_cuda(tmp_path):
    """torch.manual_seed would queue it, and the caller's CUDA generators would start from the harness's seed."""
    p = problem(tmp_path, DRAWS)
    torch.manual_seed(7)
    queued = torch.cuda._lazy_seed_tracker.get_calls()
    p.model("cpu")
    assert torch.cuda._lazy_seed_tracker.get_calls() is queued


ONLY_ON_THE_CPU = """
import torch

tried = []

class Model(torch.nn.Module):
    def forward(self, x):
        return x

def get_inputs():
    x = torch.rand(3)
    tried.append(x.device.type)
    assert x.device.type == "cpu"
    return [x]
"""


def test_get_inputs_that_fails_on_a_device_runs_on_the_cpu_and_is_not_tried_there_again(tmp_path):
    p = problem(tmp_path, ONLY_ON_THE_CPU)
    first, second = (p.inputs(5, device="meta")[0] for _ in range(2))

    assert first.device.type == "cpu" and torch.equal(first, second)
    assert p.module.tried == ["meta", "cpu", "cpu"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_the_caller_s_cuda_generator_is_as_before(tmp_path):
    p = problem(tmp_path, DRAWS.replace("torch.rand(2, 4)", "torch.rand(2, 4, device='cuda')"))
    torch.cuda.manual_seed_all(7)
    expected = torch.rand(3, device="cuda")
    torch.cuda.manual_seed_all(7)
    first, second = p.inputs(5)[0], p.inputs(5)[0]
    assert first.is_cuda and torch.equal(first, second)
    assert torch.equal(torch.rand(3, device="cuda"), expected)


def test_the_reference_draws_the_same_in_each_forward(tmp_path):
    p = problem(tmp_path, DRAWS)
    model, inputs = p.model("cpu"), p.inputs(5)
    assert torch.equal(p.forward(model, inputs), p.forward(model, inputs))


# --------------------------------------------------------------------------- problem files that name CUDA

# KernelBench's own example for prompts, model_ex_add.py, has get_inputs() like this one.
ON_CUDA = """
import torch
import torch.nn as nn

DEVICE = torch.device("cuda")
TABLE = torch.arange(4, device="cuda:0")

class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.linear = nn.Linear(128, 8, device="cuda").to("cuda").cuda()

    def forward(self, a, b):
        with torch.device("cuda"):
            shift = torch.ones(8)
        bias = torch.zeros(8, device=DEVICE) + a.new_zeros(8, device="cuda")
        return self.linear(a + b.to(a.device)) * self.scale + bias.cuda() + shift

def get_inputs():
    a = torch.randn(1, 128).cuda()
    b = torch.randn(1, 128).to("cuda", non_blocking=True)
    return [a, b]

def get_init_inputs():
    return [torch.full((), 2.0, device="cuda").cuda(0, non_blocking=True)]

def error_scale(a, b):
    return torch.ones(1, 8, device="cuda")
"""

without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is not replaced where there is a GPU")


@without_cuda
def test_a_file_that_names_cuda_runs_on_the_cpu_where_there_is_no_gpu(tmp_path):
    p = problem(tmp_path, ON_CUDA)
    a, b = p.inputs(5)
    (scale,) = p.init_inputs()
    output = p.forward(p.model("cpu"), [a, b])
    found = [a, b, scale, output, p.module.TABLE, p.error_scale([a, b])]
    assert {tensor.device.type for tensor in found} == {"cpu"}
    assert (a.shape, output.shape, float(scale)) == ((1, 128), (1, 8), 2.0)


def test_a_file_that_names_cuda_runs_on_the_cpu_for_an_emulated_device(tmp_path):
    """On every machine: also where there is a GPU, the judge of an emulated device works on the CPU."""
    source = ON_CUDA if not torch.cuda.is_available() else ON_CUDA.replace("TABLE = torch.arange", "# ")
    p = problem(tmp_path, source + "CPU_SHAPE = dict(SIZE=3)\nSIZE = 4\n").on(emulated=True)
    inputs = p.at({"SIZE": 5}).inputs(5)
    assert {tensor.device.type for tensor in (*inputs, p.forward(p.model("cpu"), inputs))} == {"cpu"}


@without_cuda
def test_the_caller_s_process_still_has_no_cuda(tmp_path):
    p = problem(tmp_path, ON_CUDA)
    p.forward(p.model("cpu"), p.inputs(5))
    for ask in (lambda: torch.ones(1).cuda(), lambda: torch.ones(1, device="cuda")):
        with pytest.raises((AssertionError, RuntimeError)):
            ask()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_file_that_names_cuda_gets_the_gpu_where_there_is_one(tmp_path):
    p = problem(tmp_path, ON_CUDA)
    inputs = p.inputs(5)
    assert inputs[0].is_cuda and p.forward(p.model("cuda"), inputs).is_cuda


# ------------------------------------------------------------- constants that are no plain numbers

TUPLES = """
height = width = 2 * 64
rows = 3
shape = (8, rows)
sizes = [5, 7]
COUNT = 2 ** 4 - 1

CHECK_SHAPES = [dict(shape=(2, 4), height=6)]

class Model: pass
def get_inputs(): return []
"""


def test_arithmetic_and_elements_of_tuples_are_in_the_shape(tmp_path):
    shape = {"height": 128, "width": 128, "rows": 3, "shape[0]": 8, "sizes[0]": 5, "sizes[1]": 7, "COUNT": 15}
    assert dict(problem(tmp_path, TUPLES).shape) == shape


def test_constants_that_are_assigned_together_can_differ(tmp_path):
    first = problem(tmp_path, TUPLES)
    at = first.at({"height": 5, "width": 6})
    assert (at.module.height, at.module.width) == (5, 6)
    at = first.at({"width": 6})
    assert (at.module.height, at.module.width) == (128, 6)


@pytest.mark.parametrize("wanted", [{"shape": (2, 4)}, {"shape": [2, 4]}, {"shape[0]": 2, "shape[1]": 4}])
def test_a_tuple_is_replaced_as_a_whole_or_by_element(tmp_path, wanted):
    at = problem(tmp_path, TUPLES).at(wanted)
    assert at.module.shape == (2, 4)
    assert (at.shape["shape[0]"], at.shape["shape[1]"]) == (2, 4)
    assert at.at(dict(at.shape)).module.shape == (2, 4)


def test_an_element_of_a_list_is_replaced_and_the_rest_kept(tmp_path):
    assert problem(tmp_path, TUPLES).at({"sizes[1]": 9}).module.sizes == [5, 9]


@pytest.mark.parametrize("wanted", [{"shape": (2,)}, {"shape": (2, 3, 4)}, {"shape": 2}, {"rows": (3,)}])
def test_a_tuple_of_another_length_is_refused(tmp_path, wanted):
    with pytest.raises(ProblemError, match="does not fit"):
        problem(tmp_path, TUPLES).at(wanted)


def test_an_element_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(ProblemError, match=re.escape("has no constant shape[2]; did you mean shape[")):
        problem(tmp_path, TUPLES).at({"shape[2]": 1})


def test_shapes_to_check_may_hold_tuples(tmp_path):
    assert problem(tmp_path, TUPLES).check_shapes == [{"shape[0]": 2, "shape[1]": 4, "height": 6}]


@pytest.mark.parametrize(("text", "expected"), [
    ("", {}), ("M=64", {"M": 64}), (" M = 64 , K=-1,", {"M": 64, "K": -1}), ("s=(8, 64),M=2", {"s": (8, 64), "M": 2}),
    ("s=[8],t=(3,)", {"s": (8,), "t": (3,)}), ("s[0]=8,s[1]=9", {"s[0]": 8, "s[1]": 9}),
])  # fmt: skip
def test_the_command_takes_numbers_and_tuples(text, expected):
    assert arguments.shape(text) == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("M=256..2048:x2,K=3", [{"M": m, "K": 3} for m in (256, 512, 1024, 2048)]), ("M=3..20:x3", [{"M": 3}, {"M": 9}]),
    ("M=256..1000:+256", [{"M": 256}, {"M": 512}, {"M": 768}]), ("M=-2..2:+2", [{"M": -2}, {"M": 0}, {"M": 2}]),
    ("M=1..2:+1,K=4..8:x2", [{"M": 1, "K": 4}, {"M": 1, "K": 8}, {"M": 2, "K": 4}, {"M": 2, "K": 8}]),
    ("s=(8, 64),M=5..5:x2", [{"s": (8, 64), "M": 5}]), ("full", [None]), ("", [{}]),
])  # fmt: skip
def test_a_range_stands_for_several_shapes(text, expected):
    assert arguments.shapes(text) == expected


@pytest.mark.parametrize("text", ["M=2..1:+1", "M=1..2:+0", "M=1..8:x1", "M=0..8:x2", "M=1..9:x0"])
def test_a_range_that_never_ends_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="empty or endless"):
        arguments.shapes(text)


@pytest.mark.parametrize("text", ["M", "M=", "M=x", "M=6.5", "=3", "M=(3", "M=()", "M=1 K=2", "M=1,,K=2", "M=1,M=2"])
def test_the_command_refuses_any_other_text(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is not of the form"):
        arguments.shape(text)


def test_random_parameters_are_other_weights_and_are_not_one_number_everywhere(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(
        "import torch\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.norm, self.other = torch.nn.BatchNorm1d(64), torch.nn.BatchNorm1d(64)\n"
        "        self.lower = torch.nn.Parameter(torch.rand(64, 64).tril())\n"
        "        self.ones, self.copy = torch.nn.Parameter(torch.ones(64)), None\n"
        "        self.copy = self.ones.sum().item()\n"
        "        self.steps = torch.nn.Parameter(torch.arange(3), requires_grad=False)\n"
        "def get_inputs():\n    return [torch.rand(2)]\n"
    )
    of = load("p", tmp_path / "p.py")
    before, after = of.state(), of.with_random_parameters(7).state()

    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert (
        changed
        == of.parameters
        == {f"{m}.{p}" for m in ("norm", "other") for p in ("weight", "bias")} | {"lower", "ones"}
    )
    assert torch.equal(after["lower"].triu(1), torch.zeros(64, 64))
    for name, start in (("norm.weight", 1), ("norm.bias", 0), ("ones", 1)):
        moved = after[name] - start
        assert len(moved.unique()) > 60 and moved.abs().max() <= 0.25
    assert not torch.equal(after["norm.weight"], after["other.weight"])
    assert of.with_random_parameters(7).model("cpu").copy == after["ones"].sum().item() != 64
    assert torch.nn.init.ones_(torch.nn.Parameter(torch.empty(2))).tolist() == [1, 1]
    again, other = of.with_random_parameters(7).state(), of.with_random_parameters(8).state()
    assert torch.equal(after["lower"], again["lower"]) and not torch.equal(after["lower"], other["lower"])


def test_random_parameters_stay_random_at_another_shape(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(
        "import torch\nN = 4\nclass Model(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.layer = torch.nn.Linear(N, N)\ndef get_inputs():\n    return [torch.rand(N, N)]\n"
    )
    of = load("p", tmp_path / "p.py")

    one, other = of.with_random_parameters(7).at({"N": 6}), of.at({"N": 6}).with_random_parameters(7)
    assert one.parameter_seed == 7
    assert torch.equal(one.state()["layer.weight"], other.state()["layer.weight"])


def test_annotations_of_a_problem_file_are_values_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x: torch.Tensor):\n        return x\n"
        "def get_inputs():\n    return [torch.rand(2)]\n"
    )
    assert load("p", tmp_path / "p.py").module.Model.forward.__annotations__ == {"x": torch.Tensor}


def test_parameters_and_buffers_with_one_value_everywhere_are_neutral(tmp_path: Path) -> None:
    parameters = {
        "h": "torch.full((3,), 0.5)",
        "one": "torch.ones(1)",
        "drawn": "torch.randn(1)",
        "w": "torch.randn(3)",
    }
    buffers = {"zeros": "torch.zeros(3)", "two": "torch.ones(3) * 2"}
    made = "        self.linear = nn.Linear(in_features, out_features)\n"
    more = "".join(f"        self.{name} = nn.Parameter({value})\n" for name, value in parameters.items())
    more += "".join(f"        self.register_buffer({name!r}, {value})\n" for name, value in buffers.items())

    assert problem(tmp_path, KERNEL_BENCH.replace(made, made + more)).neutral_state == {"h": 0.5, "one": 1, "zeros": 0}


@pytest.mark.parametrize("name", ["torch.autocast", "torch.cuda.amp.autocast", "autocast"])
def test_a_reference_under_autocast_needs_a_gpu(name: str, tmp_path: Path) -> None:
    """The judge's CPU would follow other rules than the candidate's CUDA."""
    imported = "from torch import autocast\n" if name == "autocast" else ""
    made = "        self.linear = nn.Linear(in_features, out_features)\n"
    source = imported + KERNEL_BENCH.replace(made, f"{made}        self.cast = {name}\n")
    found = problem(tmp_path, source)

    assert found.sized(None, emulated=False).shape == found.shape
    for emulated in (lambda: found.on(emulated=True), lambda: found.sized({}, emulated=True)):
        with pytest.raises(ProblemError, match=r"p\.py:\d+: torch\.autocast has other rules for CUDA"):
            emulated()
