"""The sizes that are chosen for a problem file which names none."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from kernel_harness.checking.cases import Reference, plan
from kernel_harness.cli import arguments
from kernel_harness.problem import meta, sizing
from kernel_harness.problem.problem import Problem, load

SOURCE = """
import torch

batch_size = 4096
features = 1024
height = width = 512
kernel_size = 3
groups = 32

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = {layer}

    def forward(self, x):
        {check}
        return {answer}

def get_inputs():
    return [{inputs}]
"""


def problem(
    folder: Path, inputs: str = "torch.rand(batch_size, features)", answer: str = "x * 2", check: str = "",
    layer: str = "None", more: str = "",
) -> Problem:  # fmt: skip
    path = folder / "p.py"
    path.write_text(SOURCE.format(layer=layer, check=check or "pass", answer=answer, inputs=inputs) + more)
    return load("p", path)


def test_the_cost_counts_operations_and_the_bytes_of_inputs_and_results_without_views(tmp_path: Path) -> None:
    found = meta.cost(problem(tmp_path, "torch.rand(8, 16)", "x.T @ torch.ones(8, 4)"))
    assert found is not None
    assert (found.flops, found.bytes) == (2 * 16 * 8 * 4, 4 * (8 * 16 + 8 * 4 + 16 * 4))


@pytest.mark.parametrize("inputs", ["torch.rand(4, 4).cuda()", "torch.rand(4, 4, device='cuda')"])
def test_a_problem_that_asks_for_a_device_has_a_cost(inputs: str, tmp_path: Path) -> None:
    assert meta.cost(problem(tmp_path, inputs, "x.to('cuda:0').cpu()")) is not None


def test_a_small_problem_keeps_its_size(tmp_path: Path) -> None:
    of = problem(tmp_path, "torch.rand(64, features)")
    assert sizing.fitted(of) == {}
    assert of.on(emulated=True).shape == of.shape


def test_a_large_problem_is_reduced_until_a_cpu_can_check_it(tmp_path: Path) -> None:
    """The largest constants are halved first, and those that change nothing stay. 1024 and 512 are other constants."""
    of = problem(tmp_path)
    at = of.on(emulated=True)
    assert {name: size for name, size in at.shape.items() if size != of.shape[name]} == {"batch_size": 513}
    cost = meta.cost(at)
    assert cost is not None and 0.2 < cost.share() <= 1


def test_constants_of_equal_value_stay_equal_and_small_ones_stay(tmp_path: Path) -> None:
    inputs, layer = "torch.rand(64, 4, height, width)", "torch.nn.Conv2d(4, 4, kernel_size)"
    at = problem(tmp_path, inputs, "self.first(x)", layer=layer).on(emulated=True).shape
    assert at["height"] == at["width"] < 512
    assert (at["kernel_size"], at["batch_size"]) == (3, 4096)


def test_a_size_that_the_model_does_not_accept_is_not_used(tmp_path: Path) -> None:
    at = problem(tmp_path, check="assert x.shape[0] == 4096").on(emulated=True)
    assert at.shape["batch_size"] == 4096 and at.shape["features"] < 1024


def test_a_model_of_very_many_operators_is_reduced_without_running_it_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meta, "MOST_OPERATORS", 2**8)  # of the 2**22 operators of the model
    at = problem(tmp_path, "torch.rand(2)", "[x + i for i in range(batch_size * features)]").on(emulated=True)
    cost = meta.cost(at)
    assert cost is not None and cost.operators <= meta.MOST_OPERATORS


def test_a_model_that_computes_with_numbers_keeps_its_size(tmp_path: Path) -> None:
    assert problem(tmp_path, answer="x * x.sum().item()").on(emulated=True).shape["batch_size"] == 4096


def test_a_model_whose_constructor_computes_with_numbers_is_reduced(tmp_path: Path) -> None:
    layer = "torch.nn.Dropout(torch.linspace(0, 0.5, 3)[1].item())"
    of = problem(tmp_path, answer="self.first(x)", layer=layer)
    assert sizing.fitted(of)


@pytest.mark.parametrize(
    ("layer", "inputs", "least"),
    [
        ("None", "torch.rand(batch_size, 1 << 22)", 2),
        ("torch.nn.BatchNorm1d(1 << 22)", "torch.rand(batch_size, 1 << 22)", 36),
        ("torch.nn.BatchNorm2d(1 << 20)", "torch.rand(batch_size, 1 << 20, 2, 2)", 8),
        ("torch.nn.BatchNorm2d(1 << 22)", "torch.rand(batch_size, 1 << 22, 1, 1)", 36),
        ("torch.nn.BatchNorm1d(1 << 22).eval()", "torch.rand(batch_size, 1 << 22)", 2),
    ],
    ids=["none", "over-the-batch", "over-pixels", "over-one-pixel", "no-training"],
)
def test_a_batch_stays_so_large_that_a_layer_normalizes_over_some_elements(
    layer: str, inputs: str, least: int, tmp_path: Path
) -> None:
    of = problem(tmp_path, inputs, "x if self.first is None else self.first(x)", layer=layer)  # too much at any batch
    batch = sizing.fitted(of.at({"batch_size": 72}))["batch_size"]
    assert batch == least


@pytest.mark.parametrize(
    ("layer", "groups"),
    [("torch.nn.GroupNorm(groups, features)", 2), ("torch.nn.GroupNorm(32, features)", 32)],
    ids=["groups-are-a-constant", "groups-are-a-number"],
)
def test_channels_stay_so_many_that_each_group_has_some(layer: str, groups: int, tmp_path: Path) -> None:
    of = problem(tmp_path, "torch.rand(1 << 15, features)", "self.first(x)", layer=layer)  # too much at any size
    at = of.on(emulated=True).shape
    assert at["features"] // groups >= 32 > at["features"] // groups // 2
    assert at["groups"] == (groups if "groups" in layer else 32)


def test_a_row_that_a_layer_normalizes_stays_so_long(tmp_path: Path) -> None:
    of = problem(tmp_path, "torch.rand(1 << 20, features)", "self.first(x)", layer="torch.nn.LayerNorm(features)")
    assert 32 <= sizing.fitted(of)["features"] < 64


def test_a_layer_that_normalizes_over_few_elements_keeps_them(tmp_path: Path) -> None:
    inputs, layer = "torch.rand(batch_size, 1 << 22)", "torch.nn.BatchNorm1d(1 << 22)"
    of = problem(tmp_path, inputs, "self.first(x)", layer=layer).at({"batch_size": 10})
    assert sizing.fitted(of) == {}


@pytest.mark.parametrize(
    "call",
    [
        "nn.functional.batch_norm(ones(4, 6, 5, 5), ones(6), ones(6), ones(6), ones(6), True)",
        "nn.functional.batch_norm(ones(4, 6), None, None, training=True)",
        "nn.functional.batch_norm(ones(4, 6, 5), ones(6), ones(6))",
        "nn.functional.batch_norm(ones(4, 6), ones(7), ones(7))",
        "nn.functional.instance_norm(ones(4, 6, 5, 5))",
        "addmm(ones(5), ones(3, 4), ones(4, 5))",
        "addmm(ones(3, 5), ones(3, 4), ones(4, 5))",
        "addmm(ones(3, 1), ones(3, 4), ones(4, 5))",
        "addmm(ones(4), ones(3, 4), ones(4, 5))",
        "addmm(ones(5), ones(3, 4), ones(5, 5))",
        "addmm(ones(5), ones(3, 4), ones(4, 5, dtype=float64))",
        "ones(3, 4).sigmoid_()",
        "ones(3, 4, 5).permute(2, 0, 1).relu()",
        "nn.functional.gelu(ones(4, 6, 5, 5).contiguous(memory_format=channels_last))",
        "nn.functional.relu6(ones(4, 1).expand(4, 3))",
        "nn.functional.hardtanh(ones(4, 6)[:, ::2])",
        "nn.functional.leaky_relu(ones(4, 6, dtype=half), 0.2)",
        "nn.functional.elu(ones(4, 6)) + nn.functional.selu(ones(4, 6)) + nn.functional.softplus(ones(4, 6))",
        "nn.functional.silu(ones(4, 6)) + nn.functional.mish(ones(4, 6)) + nn.functional.hardswish(ones(4, 6))",
        "nn.functional.relu(ones(4, 6, dtype=int32))",
        "ones(3, 4, dtype=int64).exp()",
        "ones(3, 4).abs().sqrt().neg().tanh().exp().sigmoid()",
        "ones(3, 4, dtype=complex64).abs()",
        "exp(ones(3, 4), out=ones(3, 4))",
        "ones(3, 4) * ones(4) + ones(3, 1) / 2 - 1.5",
        "ones(4) * ones(3, 4)",
        "ones(3, 1) + ones(1, 4)",
        "ones(3, 4) * ones(3)",
        "ones(3, 4).mul_(ones(3))",
        "ones(3, 4).mul_(ones(2, 3, 4))",
        "ones(3, 4).add_(ones(4)).div_(2)",
        "ones(3, 4) * ones(4, dtype=float64)",
        "ones(3, 4) * ones(4, dtype=int64) * True",
        "ones(3, 4) * 2j",
        "ones(4, 3).T * ones(3, 4)",
        "ones(3, 4) * ones(4, 3).T",
        "ones(3, 1).expand(3, 4) + ones(3, 4)",
        "ones(3, 4, dtype=half) * ones(())",
        "div(ones(3, 4), ones(4), rounding_mode='floor')",
        "ones(3, 4).tanh_() + nn.functional.relu_(ones(4))",
        "nn.GRU(4, 6, 2)(ones(5, 3, 4))[0]",
        "ones(3, 4, dtype=int64).sigmoid_()",
        "ones(3, 4).clamp(0) + ones(3, 4).clamp(max=2).clamp_min(1) + ones(3, 4).log()",
        "ones(3, 4).clamp()",
        "ones(3, 4).clamp(ones(2, 3, 4))",
        "ones(3, 4).pow(2) ** 0.5",
        "ones(3, 4, dtype=half).pow(ones(4))",
        "ones(3, 4, 5).mean((0, -1)) + ones(3, 4, 5).mean(2, keepdim=True).mean(0)[:, 0]",
        "ones(3, 4).mean((0, 0))",
        "ones(3, 4).mean(2)",
        "ones(3, 4).mean(())",
        "ones(3, 4).mean(0, dtype=float64)",
        "ones(3, 4).softmax(-1) + ones(4, 3).T.softmax(0)",
        "ones(3, 4).softmax(2)",
        "ones(3, 4, dtype=half).softmax(1, dtype=float32)",
        "ones(()).softmax(0)",
        "nn.functional.group_norm(ones(2, 6, 4, 4), 3, ones(6), ones(6))",
        "nn.functional.group_norm(ones(2, 6, 4, 4).transpose(2, 3)[:, :, ::2], 2)",
        "nn.functional.group_norm(ones(2, 6, 4), 4)",
        "nn.functional.group_norm(ones(2, 6, 4), 3, ones(5))",
    ],
)
def test_quick_operators_have_the_shapes_and_errors_of_torch(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome() -> object:
        try:
            with meta.on_meta(), meta._Work():
                found = eval(call, vars(torch))
        except (RuntimeError, ValueError, IndexError) as error:
            return type(error)
        return found.shape, found.stride(), found.dtype, found.device

    quick = outcome()
    monkeypatch.setattr(meta, "_quick", lambda func, args: None)
    assert quick == outcome()


def test_a_batch_as_large_as_a_square_is_reduced_without_it(tmp_path: Path) -> None:
    inputs = "torch.rand(batch_size, 3, height, width)"
    of = problem(tmp_path, inputs, check="assert x.shape[2:] == (512, 512)").at({"batch_size": 512})
    found = sizing.fitted(of)
    assert found.keys() == {"batch_size"} and found["batch_size"] < 16


def test_a_batch_that_must_be_as_large_as_another_constant_is_reduced_with_it(tmp_path: Path) -> None:
    inputs = "torch.rand(batch_size, features), torch.rand(batch_size)"
    source = SOURCE.replace("forward(self, x)", "forward(self, x, y)")
    path = tmp_path / "p.py"
    path.write_text(source.format(layer="None", check="pass", answer="x * y", inputs=inputs))
    found = sizing.fitted(load("p", path).at({"batch_size": 1 << 14, "features": 1 << 14}))
    assert found["batch_size"] == found["features"] < 1 << 12


def test_constants_of_a_fixed_ratio_are_reduced_together(tmp_path: Path) -> None:
    inputs, layer = "torch.rand(64, 16, height, 2 * width)", "torch.nn.LayerNorm(features)"
    of = problem(tmp_path, inputs, "self.first(x)", layer=layer).at({"groups": 5})
    found = sizing.fitted(of)
    assert found["features"] == 2 * found["width"] and found["height"] == found["width"] < 64
    cost = meta.cost(of.at(found))
    assert cost is not None and cost.share() <= 1


def test_another_number_is_tried_where_the_model_does_not_accept_the_half(tmp_path: Path) -> None:
    of = problem(tmp_path, check="assert x.shape[1] % 3 == 0").at({"features": 1026, "batch_size": 1 << 20})
    assert sizing.fitted(of)["features"] % 3 == 0


def test_sizes_that_the_file_states_are_used(tmp_path: Path) -> None:
    at = problem(tmp_path, more="CPU_SHAPE = dict(features=2048)\n").on(emulated=True)
    assert (at.shape["features"], at.shape["batch_size"]) == (2048, 4096)


def test_the_user_can_ask_for_the_file_s_own_size(tmp_path: Path) -> None:
    of = problem(tmp_path)
    assert of.sized(arguments.shape("full"), emulated=True).shape == of.shape
    assert of.sized({"features": 2}, emulated=True).shape["features"] == 2


# Sizes of the file, one at a time.


def shapes(of: Problem) -> list[dict[str, int]]:
    return [dict(case.shape) for case in plan(of, 1) if case.optional and not case.drawn and not case.timed_shape]


def test_each_reduced_size_is_checked_at_its_value_in_the_file_once(tmp_path: Path) -> None:
    of = problem(tmp_path, "torch.rand(height, batch_size, features)").at({"features": 4096, "batch_size": 2048})
    (tmp_path / "p.py").write_text(of.text)
    of = load("p", of.path)
    at = of.on(emulated=True)
    found = shapes(at)
    assert at.shape["features"] <= 1024 and at.shape["batch_size"] <= 512 and at.shape["height"] <= 512
    assert {"features": 4096} in [{k: v for k, v in s.items() if v == of.shape[k] > 512} for s in found]
    for shape in found:
        cost = meta.cost(at.at(shape))
        assert cost is not None and cost.flops <= 2 * meta.MOST_FLOPS and cost.bytes <= 9 * meta.MOST_BYTES
    assert Reference(at, "cpu", None).works(plan(at, 1)[-2])


def test_a_long_dimension_is_checked_at_its_value_in_the_file(tmp_path: Path) -> None:
    """A kernel may keep a row of the file's own length in shared memory, or sum it in float32."""
    inputs = "torch.rand(batch_size, length), torch.rand(length, 1)"
    of = problem(tmp_path, inputs, "x[0] @ x[1]", more="length = 1 << 20\n")
    (tmp_path / "p.py").write_text(of.text.replace("forward(self, x)", "forward(self, *x)"))
    at = load("p", of.path).on(emulated=True)
    assert at.shape["length"] < 1 << 14 and 1 << 20 in [shape["length"] for shape in shapes(at)]


def test_a_size_that_costs_too_much_alone_is_checked_at_a_part_of_its_value(tmp_path: Path) -> None:
    """A kernel with one thread for each column is right for up to 1024 columns."""
    source = SOURCE.replace("forward(self, x)", "forward(self, x, y)")
    inputs, path = "torch.rand(batch_size, features), torch.rand(batch_size)", tmp_path / "p.py"
    path.write_text(source.format(layer="None", check="pass", answer="(1 - x * y).clamp(min=0).mean()", inputs=inputs))
    path.write_text(load("p", path).at({"batch_size": 1 << 15, "features": 1 << 15}).text)
    at = load("p", path).on(emulated=True)
    assert at.shape["features"] <= 512
    assert [shape["features"] for shape in shapes(at) if shape["features"] == shape["batch_size"]] == [2048]


def test_one_shape_has_over_a_million_elements(tmp_path: Path) -> None:
    """A grid of 1024 blocks of 1024 threads reaches a million elements, and a loop the others."""
    of = problem(tmp_path, "torch.rand(batch_size, features)", "x.sigmoid()")
    (tmp_path / "p.py").write_text(of.at({"features": 393216}).text)
    at = load("p", of.path).on(emulated=True)
    elements = [shape["batch_size"] * shape["features"] for shape in (at.shape, *shapes(at))]
    assert elements[0] < 1 << 20 < elements[1] and max(elements) < 1 << 22


@pytest.mark.parametrize("more", ["CHECK_SHAPES = []\n", "CPU_SHAPE = dict(features=64)\n"])
def test_a_file_that_states_its_sizes_is_checked_at_no_other(more: str, tmp_path: Path) -> None:
    of = problem(tmp_path, "torch.rand(batch_size, features)", more=more)
    assert shapes(of.on(emulated=True)) == []


def test_a_gpu_checks_no_size_of_the_file_apart(tmp_path: Path) -> None:
    of = problem(tmp_path, "torch.rand(batch_size, features)")
    assert shapes(of.at({"features": 64})) == []


def test_a_size_whose_weights_are_large_is_not_checked(tmp_path: Path) -> None:
    more, layer = "width_in = 1 << 14\n", "torch.nn.Linear(width_in, width_in)"
    of = problem(tmp_path, "torch.rand(features, width_in)", "self.first(x)", layer=layer, more=more)
    of = of.at({"width_in": 1 << 14})
    at = of.on(emulated=True)
    assert at.shape["width_in"] < 1 << 12 and all(shape["width_in"] < 1 << 13 for shape in shapes(at))


# Sizes near a size.


@pytest.mark.parametrize("seed", range(5))
def test_near_sizes_are_a_little_smaller_and_odd(seed: int, tmp_path: Path) -> None:
    found = sizing.near(problem(tmp_path), random.Random(seed))
    assert 3072 <= found["batch_size"] < 4096 and found["batch_size"] % 2 == 1
    assert 768 <= found["features"] < 1024 and found["features"] % 2 == 1
    assert found["kernel_size"] == 3 and found["groups"] == 32


def test_near_sizes_are_equal_where_the_problem_s_are(tmp_path: Path) -> None:
    found = sizing.near(problem(tmp_path, "torch.rand(height, width)"), random.Random(0))
    assert found["height"] == found["width"] != 512


@pytest.mark.parametrize("seed", range(5))
def test_constants_of_different_value_stay_different(seed: int, tmp_path: Path) -> None:
    """A kernel that takes one dimension for another must be wrong."""
    names = "width_in", "width_out", "length"
    more = f"{', '.join(names)} = 64, 128, 4096\n"
    of = problem(tmp_path, "torch.rand(16, width_in, length), torch.rand(width_out, width_in)",
                 "torch.einsum('bil,oi->bol', x, y)", more=more)  # fmt: skip
    (tmp_path / "p.py").write_text((tmp_path / "p.py").read_text().replace("forward(self, x)", "forward(self, x, y)"))
    at = load("p", of.path).on(emulated=True)
    near = at.at(sizing.near(at, random.Random(seed)))
    for shape in (at.shape, near.shape):
        assert len({shape[name] for name in names}) == 3 and shape["length"] < 4096
    assert all(near.shape[name] < at.shape[name] for name in names)


def test_near_sizes_are_accepted_by_the_model(tmp_path: Path) -> None:
    of = problem(tmp_path, check="assert x.shape[1] % 128 == 0")
    found = sizing.near(of, random.Random(0))
    assert found["features"] == 768 and found["batch_size"] % 2 == 1  # 512 is the height


def test_a_problem_without_sizes_has_none_near(tmp_path: Path) -> None:
    assert sizing.near(problem(tmp_path, "torch.rand(5)"), random.Random(0)) == {}


def test_a_run_checks_a_size_near_the_timed_one_that_no_file_names(tmp_path: Path) -> None:
    of = problem(tmp_path, "torch.rand(groups, features)")
    drawn = [[case for case in plan(of, seed) if case.drawn] for seed in range(9)]
    assert all([case.distribution for case in cases] == ["own", "sparse"] for cases in drawn)
    assert len({cases[0].shape for cases in drawn}) > 3
    assert Reference(of, "cpu", None).works(drawn[0][0])


def test_a_file_that_lists_shapes_is_checked_at_those(tmp_path: Path) -> None:
    of = problem(tmp_path, more="CHECK_SHAPES = []\n")
    assert not [case for case in plan(of, 1) if case.drawn]
