"""The mistake behind wrong values: which are recognised from the reference's answers, and what is no known mistake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from kernel_harness.checking import hypotheses
from kernel_harness.checking.cases import Reference, plan
from kernel_harness.checking.patterns import Pattern
from kernel_harness.checking.replay import Replay
from kernel_harness.checking.summed import counted
from kernel_harness.checking.verify import verify
from kernel_harness.core.status import Status
from kernel_harness.problem.problem import load

torch.set_num_threads(1)
SOURCE = """
import torch
from torch.nn import functional

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = {layer}

    def forward(self, {arguments}):
        return {answer}

def get_inputs():
    return [{inputs}]
"""
# The layer, the arguments of forward, its answer, and the inputs.
PRODUCT = ("None", "A, B", "A @ B", "torch.rand(24, 40), torch.rand(40, 20)")
SQUARES = ("None", "A, B", "A @ B.T + A", "torch.rand(24, 24), torch.rand(24, 24)")
LINEAR = ("torch.nn.Linear(32, 24)", "x", "self.layer(x)", "torch.rand(40, 32)")
CONV = ("torch.nn.Conv2d(6, 8, 3)", "x", "self.layer(x)", "torch.rand(4, 6, 14, 11)")
POSITIVE = ("None", "A, B", "(A @ B).relu()", PRODUCT[3])
REPEATED = ("None", "A, B", "A @ B", "torch.rand(24, 20).repeat(1, 2), torch.rand(20, 20).repeat(2, 1)")
WITH_ZEROS = ("None", "A, B", "A @ B", "torch.rand(24, 40), torch.rand(40, 20) * (torch.arange(40) != 5)[:, None]")
ELEMENTS = ("None", "x", "2 * x + 1", "torch.rand(24, 24)")
SOFTMAX = ("None", "x", "functional.softmax(x, dim=1)", "torch.rand(48, 32)")
MAXIMA = ("None", "x", "x.amax(dim=1)", "torch.rand(96, 32)")
EPS = ("torch.nn.LayerNorm(32, eps=0.1)", "x", "self.layer(x)", "torch.rand(48, 32)")
MASKED = ("None", "x", "functional.softmax(x.masked_fill(x > 0.6, -9.0), 1)", "torch.rand(48, 32)")
CAUSAL = ("None", "x", "functional.scaled_dot_product_attention(x, x, x, is_causal=True)", "torch.rand(2, 3, 16, 8)")
TRIANGLE = ("None", "A, B", "A.tril() @ B", "torch.rand(32, 32), torch.rand(32, 24)")
NORM = ("torch.nn.LayerNorm(32)", "x", "self.layer(x)", "torch.rand(48, 32)")

Wrong = Callable[[torch.nn.Module, Sequence[torch.Tensor]], torch.Tensor]


class Judged:
    """A problem at its own size, and what is said of a wrong answer to it."""

    def __init__(self, folder: Path, parts: tuple[str, str, str, str]) -> None:
        layer, arguments, answer, inputs = parts
        path = folder / "p.py"
        path.write_text(SOURCE.format(layer=layer, arguments=arguments, answer=answer, inputs=inputs))
        self.problem = load("p", path)
        self.reference = Reference(self.problem, "cpu", None)
        self.case = plan(self.problem, 1)[0]
        self.expectation = self.reference.expectation(self.case)[1]

    def output(self, wrong: Wrong) -> torch.Tensor:
        with torch.no_grad():
            return wrong(self.problem.model("cpu").layer, self.reference.inputs(self.case).tensors)

    def mistake(self, wrong: Wrong) -> Pattern | None:
        outputs = [self.output(wrong)]
        assert verify(outputs, self.expectation).status is Status.WRONG_VALUES
        return hypotheses.mistake(outputs, self.expectation, self.reference, self.case)

    def said(self, wrong: Wrong) -> str:
        found = self.mistake(wrong)
        return found.text if found else ""


def misread(tensor: torch.Tensor) -> torch.Tensor:
    """What a kernel reads that takes the index j * rows + i for element [i, j] of a matrix."""
    rows, columns = tensor.shape
    flat, out = tensor.flatten(), torch.empty_like(tensor)
    for i in range(rows):
        for j in range(columns):
            out[i, j] = flat[j * rows + i]
    return out


def weighted(tensor: torch.Tensor, axis: int, weights: dict[int, float]) -> torch.Tensor:
    """The tensor with some indices of a dimension multiplied, which is how often a sum over it counts them."""
    out = tensor.clone()
    for index, weight in weights.items():
        out.select(axis, index).mul_(weight)
    return out


def few(rows: int, columns: int) -> torch.Tensor:
    """A mask of the first five elements."""
    return torch.arange(rows * columns).reshape(rows, columns) < 5


@pytest.mark.parametrize(
    ("wrong", "which"),
    [
        (lambda layer, x: misread(x[0]) @ x[1], "input 1 (A) read with its last two indices"),
        (lambda layer, x: x[0] @ misread(x[1]), "input 2 (B) read with its last two indices"),
        (
            lambda layer, x: misread(x[0]) @ misread(x[1]),
            "input 1 (A) and input 2 (B) read with the last two indices of each",
        ),
    ],
    ids=["first", "second", "both"],
)
def test_swapped_indices_of_an_input(wrong: Wrong, which: str, tmp_path: Path) -> None:
    assert Judged(tmp_path, PRODUCT).said(wrong) == f"The output is the reference's answer for {which} swapped."


def attention(x: torch.Tensor, causal: bool) -> torch.Tensor:
    return functional.scaled_dot_product_attention(x, x, x, is_causal=causal)


@pytest.mark.parametrize(
    ("parts", "wrong", "text"),
    [
        (EPS, lambda layer, x: functional.layer_norm(x[0], (32,), layer.weight, layer.bias, 0.0), "0 in place of eps."),
        (
            MASKED, lambda layer, x: functional.softmax(x[0].masked_fill(x[0] <= 0.6, -9.0), 1),
            "answer with its mask read the other way round.",
        ),
        (CAUSAL, lambda layer, x: attention(x[0], causal=False), "without the causal mask."),
        (TRIANGLE, lambda layer, x: x[0].tril(-1) @ x[1], "diagonal is one place further left."),
        (TRIANGLE, lambda layer, x: x[0].tril(1) @ x[1], "diagonal is one place further right."),
        (
            CONV, lambda layer, x: functional.conv2d(
                x[0], layer.weight.reshape(6, 8, 3, 3).transpose(0, 1), layer.bias
            ),
            "answer for the parameter layer.weight read with its first two indices swapped.",
        ),
        (
            CONV, lambda layer, x: functional.conv2d(x[0], layer.weight.flip(2, 3), layer.bias),
            "answer with each kernel of the parameter layer.weight mirrored.",
        ),
    ],
    ids=["eps", "mask", "causal", "below", "above", "channels", "mirrored"],
)  # fmt: skip
def test_an_eps_a_mask_or_a_kernel_that_is_read_wrongly(parts: Any, wrong: Wrong, text: str, tmp_path: Path) -> None:
    assert Judged(tmp_path, parts).said(wrong).endswith(text)


def test_a_mask_that_is_an_input_is_named(tmp_path: Path) -> None:
    parts = ("None", "x, keep", "x * keep", "torch.rand(48, 32), torch.rand(48, 32) > 0.3")
    said = Judged(tmp_path, parts).said(lambda layer, x: x[0] * ~x[1])
    assert said == "The output is the reference's answer with input 2 (keep) read the other way round."


def test_the_advice_for_swapped_indices_is_the_address(tmp_path: Path) -> None:
    found = Judged(tmp_path, PRODUCT).mistake(lambda layer, x: misread(x[0]) @ x[1])
    address = "element [i, j] of input 1 (A) is at i * 40 + j, not at j * 24 + i"
    assert found and found.advice == f"check the address of the load: {address}"


def test_swapped_indices_of_a_parameter(tmp_path: Path) -> None:
    said = Judged(tmp_path, LINEAR).said(lambda layer, x: functional.linear(x[0], misread(layer.weight), layer.bias))
    name = "the parameter layer.weight"
    assert said == f"The output is the reference's answer for {name} read with its last two indices swapped."


def test_swapped_indices_in_some_rows_only(tmp_path: Path) -> None:
    def wrong(layer: torch.nn.Module, x: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.cat((x[0][:16] @ x[1], x[0][16:] @ misread(x[1])))

    assert "input 2 (B) read with" in Judged(tmp_path, PRODUCT).said(wrong)


def test_a_parameter_or_an_input_that_is_left_out(tmp_path: Path) -> None:
    said = Judged(tmp_path, CONV).said(lambda layer, x: functional.conv2d(x[0], layer.weight))
    assert said == "The output is the reference's answer with 0 in place of the parameter layer.bias."
    said = Judged(tmp_path, SQUARES).said(lambda layer, x: x[0])
    assert said == "The output is the reference's answer with 0 in place of input 2 (B)."


MASK = "torch.rand(24, 20), torch.rand(24, 20) > 0.5"
INDEX = "torch.rand(24, 20), torch.randint(24, (24,))"


@pytest.mark.parametrize(
    ("arguments", "answer", "inputs", "wrong", "name"),
    [
        ("x, m", "x.masked_fill(m, 0)", MASK, lambda x, m: x, "False in place of input 2 (m)"),
        ("x, m", "torch.where(m, x, 2 * x)", MASK, lambda x, m: x, "True in place of input 2 (m)"),
        ("x, i", "x[i] + x", INDEX, lambda x, i: x[0] + x, "0 in place of input 2 (i)"),
        ("x, s", "(s * x).exp()", "torch.rand(24, 20), 0.25", lambda x: x.exp(), "1 in place of s"),
    ],
    ids=["mask", "condition", "index", "number"],
)
def test_an_input_of_another_kind_that_is_left_out(
    arguments: str, answer: str, inputs: str, wrong: Callable[..., torch.Tensor], name: str, tmp_path: Path
) -> None:
    said = Judged(tmp_path, ("None", arguments, answer, inputs)).said(lambda layer, x: wrong(*x))
    assert said == f"The output is the reference's answer with {name}."


def test_exchanged_inputs(tmp_path: Path) -> None:
    said = Judged(tmp_path, SQUARES).said(lambda layer, x: x[1] @ x[0].T + x[1])
    assert said == "The output is the reference's answer with input 1 (A) and input 2 (B) exchanged."


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        ({0: 0}, "leaves out index 0 of 40"),
        (dict.fromkeys(range(32, 40), 0), "leaves out indices 32 to 39 of 40"),
        (dict.fromkeys([*range(8, 16), *range(24, 32)], 0), "leaves out indices 8 to 15 and 24 to 31 of 40"),
        (dict.fromkeys(range(32, 40), 2), "counts indices 32 to 39 of 40 twice"),
        ({3: -1}, "counts index 3 of 40 -1 times"),
    ],
    ids=["start", "tail", "step", "twice", "sign"],
)
def test_a_wrong_loop_over_a_sum(weights: dict[int, float], text: str, tmp_path: Path) -> None:
    said = Judged(tmp_path, PRODUCT).said(lambda layer, x: weighted(x[0], 1, weights) @ x[1])
    assert said == f"The sum over dimension 1 of input 1 (A) and dimension 0 of input 2 (B) {text}."


def test_a_wrong_loop_for_the_last_rows_only(tmp_path: Path) -> None:
    def wrong(layer: torch.nn.Module, x: Sequence[torch.Tensor]) -> torch.Tensor:
        return torch.cat((x[0][:16] @ x[1], x[0][16:, 1:] @ x[1][1:]))

    assert Judged(tmp_path, PRODUCT).said(wrong).endswith("leaves out index 0 of 40.")


def test_a_wrong_loop_beside_a_bias(tmp_path: Path) -> None:
    tail = dict.fromkeys(range(16, 32), 0.0)
    said = Judged(tmp_path, LINEAR).said(lambda layer, x: layer(weighted(x[0], 1, tail)))
    places = "dimension 1 of input 1 (x) and dimension 1 of the parameter layer.weight"
    assert said == f"The sum over {places} leaves out indices 16 to 31 of 32."


def test_a_wrong_loop_over_the_channels_of_a_convolution(tmp_path: Path) -> None:
    said = Judged(tmp_path, CONV).said(lambda layer, x: layer(weighted(x[0], 1, {5: 0})))
    places = "dimension 1 of input 1 (x) and dimension 1 of the parameter layer.weight"
    assert said == f"The sum over {places} leaves out index 5 of 6."


def test_a_tap_that_a_convolution_leaves_out(tmp_path: Path) -> None:
    def wrong(layer: torch.nn.Module, x: Sequence[torch.Tensor]) -> torch.Tensor:
        return functional.conv2d(x[0], weighted(layer.weight, 3, {2: 0}), layer.bias)

    said = Judged(tmp_path, CONV).said(wrong)
    assert said == "The sum over dimension 3 of the parameter layer.weight leaves out index 2 of 3."


@pytest.mark.parametrize(
    ("parts", "wrong"),
    [
        (PRODUCT, lambda layer, x: torch.randn(24, 20, generator=torch.Generator().manual_seed(3))),
        (PRODUCT, lambda layer, x: torch.rand(24, 20, generator=torch.Generator().manual_seed(3)) * 20),
        (PRODUCT, lambda layer, x: weighted(x[0], 1, {7: 0.5}) @ x[1]),
        (PRODUCT, lambda layer, x: weighted(x[0] @ x[1], 0, dict.fromkeys(range(16, 24), 0))),
        (PRODUCT, lambda layer, x: weighted(x[0] @ x[1], 1, dict.fromkeys(range(16, 20), 0))),
        (PRODUCT, lambda layer, x: 2 * x[0] @ x[1]),
        (PRODUCT, lambda layer, x: torch.zeros(24, 20)),
        (PRODUCT, lambda layer, x: torch.full((24, 20), torch.nan)),
        (PRODUCT, lambda layer, x: (x[0] @ x[1]).roll(1, 1)),
        (PRODUCT, lambda layer, x: weighted(x[0] @ x[1], 0, {5: 3})),
        (PRODUCT, lambda layer, x: weighted(x[0] @ x[1], 0, {m: 2 + m % 2 for m in range(24)})),
        (ELEMENTS, lambda layer, x: 2 * x[0].T + 1),
        (PRODUCT, lambda layer, x: torch.where(few(24, 20), misread(x[0]) @ x[1], x[0] @ x[1])),
        (POSITIVE, lambda layer, x: sum(x[0][:, k : k + 1].matmul(x[1][k : k + 1]).relu() for k in range(1, 40))),
        (REPEATED, lambda layer, x: weighted(x[0], 1, {0: 0, 20: 0}) @ x[1]),
        (WITH_ZEROS, lambda layer, x: weighted(x[0], 1, {0: 0}) @ x[1]),
        (LINEAR, lambda layer, x: x[0] @ layer.weight.T + 2 * layer.bias),
        (CONV, lambda layer, x: weighted(layer(x[0]), 2, dict.fromkeys(range(8, 12), 0))),
        (CONV, lambda layer, x: torch.randn(4, 8, 12, 9, generator=torch.Generator().manual_seed(3))),
        (SOFTMAX, lambda layer, x: functional.softmax(weighted(x[0], 1, {31: 0}), dim=1)),
        (SOFTMAX, lambda layer, x: functional.pad(functional.softmax(x[0][:, :31], dim=1), (0, 1))),
        (MAXIMA, lambda layer, x: x[0][:, :24].amax(dim=1)),
        (NORM, lambda layer, x: layer(weighted(x[0], 1, {31: 0}))),
    ],
    ids=[
        "random", "uniform", "half-a-term", "no-tail-rows", "no-tail-columns", "factor", "zeros", "nan", "shifted",
        "one-row", "factor-by-row", "transposed-output", "few-elements", "no-sum", "equal-terms", "zero-terms",
        "bias-twice", "conv-no-tail", "conv-random", "softmax", "softmax-tail", "maxima", "norm",
    ],
)  # fmt: skip
def test_other_wrong_answers_get_no_mistake(parts: tuple[str, str, str, str], wrong: Wrong, tmp_path: Path) -> None:
    assert Judged(tmp_path, parts).mistake(wrong) is None


def test_each_of_many_random_answers_gets_no_mistake(tmp_path: Path) -> None:
    judged = Judged(tmp_path, PRODUCT)
    generator = torch.Generator().manual_seed(1)
    for scale in torch.logspace(-2, 1, 30):
        noise = torch.randn(24, 20, generator=generator) * scale
        assert judged.mistake(lambda layer, x, noise=noise: x[0] @ x[1] + noise) is None  # type: ignore[misc]


def test_the_search_leaves_torch_and_the_inputs_as_they_were(tmp_path: Path) -> None:
    judged = Judged(tmp_path, ("torch.nn.Dropout(0.5)", *PRODUCT[1:]))
    outputs = [judged.output(lambda layer, x: torch.randn(24, 20))]
    inputs = [t.clone() for t in judged.reference.inputs(judged.case).tensors]
    torch.set_num_threads(2)
    state = torch.get_rng_state()
    try:
        assert hypotheses.find(outputs, judged.expectation, judged.reference, judged.case) is None
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(map(torch.equal, judged.reference.inputs(judged.case).tensors, inputs))


def test_a_reference_that_fails_with_other_inputs_is_no_error(tmp_path: Path) -> None:
    judged = Judged(tmp_path, ("None", "A, B", "A @ B if A.abs().sum() > 0 and A[0, 0] != 0 else [][0]", PRODUCT[3]))
    outputs = [judged.output(lambda layer, x: x[0][:, 1:] @ x[1][1:])]
    with pytest.raises(IndexError):
        hypotheses.mistake(outputs, judged.expectation, judged.reference, judged.case)
    assert hypotheses.find(outputs, judged.expectation, judged.reference, judged.case) is None


def test_a_reference_that_is_too_slow_for_all_its_parameters_is_tried_with_its_inputs_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_input(layer: torch.nn.Module, x: Sequence[torch.Tensor]) -> torch.Tensor:
        return layer(torch.zeros_like(x[0])) + x[1]

    def without_bias(layer: torch.nn.Module, x: Sequence[torch.Tensor]) -> torch.Tensor:
        return functional.linear(x[0], layer.weight) + x[1]

    parts = ("torch.nn.Linear(40, 20)", "x, y", "self.layer(x) + y", "torch.rand(24, 40), torch.rand(24, 20)")
    judged = Judged(tmp_path, parts)
    assert "0 in place of the parameter layer.bias" in judged.said(without_bias)
    monkeypatch.setattr(Replay, "affords", lambda self, runs: runs < 2 * 2)  # of two parameters
    assert "0 in place of input 1 (x)" in judged.said(without_input)
    with pytest.raises(TimeoutError, match="to change each of its 2 parameters"):
        judged.mistake(without_bias)


def test_a_replay_affords_as_many_runs_as_end_in_time(tmp_path: Path) -> None:
    busy = "[x := x @ x / 100 for _ in range(50)][-1]"
    judged = Judged(tmp_path, ("None", "x", busy, "torch.rand(100, 100)"))
    replay = Replay(judged.problem, judged.reference.inputs(judged.case), "cpu")
    replay.outputs()
    assert replay.affords(1) and not replay.affords(10**6)


def test_values_that_are_hardly_different_are_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = Judged(tmp_path, PRODUCT)
    monkeypatch.delattr(hypotheses, "Replay")
    assert judged.mistake(lambda layer, x: torch.zeros(24, 20)) is None


@pytest.mark.parametrize(
    ("inputs", "little"),
    [
        ("torch.rand(24, 40), torch.rand(40, 20)", False),
        ("torch.rand(3, 40), torch.rand(40, 2)", True),
        ("torch.rand(24, 4000), torch.rand(4000, 20)", True),
    ],
    ids=["enough", "few-elements", "long-sum"],
)
def test_which_cases_show_little(inputs: str, little: bool, tmp_path: Path) -> None:
    judged = Judged(tmp_path, ("None", "A, B", "A @ B", inputs))
    outputs = [judged.output(lambda layer, x: x[0] @ x[1])]
    assert hypotheses.shows_little(outputs, judged.reference, judged.case) is little


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        ([0, 1, 1], "leaves out index 0 of 3"),
        ([1, 0, 0, 1, 0], "leaves out indices 1 to 2 and 4 of 5"),
        ([1, 0] * 4, "leaves out 4 indices (1, 3, 5 and so on) of 8"),
        ([0, 2], "leaves out index 0 of 2 and counts index 1 of 2 twice"),
        ([1, 2, 3, 4], "counts indices 1 to 3 of 4 between twice and 4 times"),
        ([0, 2, 3, 1], "counts indices 0 to 2 of 4 between 0 times and 3 times"),
    ],
)
def test_the_counts_of_a_sum_as_text(weights: list[int], text: str) -> None:
    assert counted(weights) == text


GELU = ("torch.nn.GELU()", "x", "self.layer(x)", "torch.randn(48, 32)")
TANH_GELU = ("torch.nn.GELU(approximate='tanh')", *GELU[1:])
BATCH_NORM = ("torch.nn.BatchNorm2d(6)", "x", "self.layer(x)", "torch.rand(4, 6, 14, 11)")
GROUP_NORM = ("torch.nn.GroupNorm(2, 6)", *BATCH_NORM[1:])
VARIANCE = ("None", "x", "x - x.var(dim=1, keepdim=True)", "torch.rand(48, 32)")
BY_N = (*VARIANCE[:2], "x - x.var(dim=1, keepdim=True, unbiased=False)", VARIANCE[3])
BY_PLACE = (*VARIANCE[:2], "x - x.std(1, False, True)", VARIANCE[3])
SQUARED = (*VARIANCE[:2], "x - (x - x.mean(1, keepdim=True)).pow(2).mean(1, keepdim=True)", VARIANCE[3])
UNIT = (*VARIANCE[:2], "functional.normalize(x)", VARIANCE[3])
CENTRED = (*VARIANCE[:2], "x - x.mean(1, True)", "torch.rand(32, 32)")
LAYER_NORM = ("torch.nn.LayerNorm(1024)", *GELU[1:3], "torch.randn(48, 1024)")
LEAKY = ("torch.nn.LeakyReLU(0.2)", *GELU[1:])
POOL = ("torch.nn.AvgPool2d(3, padding=1)", *BATCH_NORM[1:])


def sample_variance(layer: torch.nn.Module, x: Sequence[torch.Tensor]) -> torch.Tensor:
    parts = x[0].reshape(4, 2, -1)
    out = (parts - parts.mean(2, keepdim=True)) / (parts.var(2, keepdim=True) + layer.eps).sqrt()
    return out.reshape(x[0].shape) * layer.weight[:, None, None] + layer.bias[:, None, None]


@pytest.mark.parametrize(
    ("parts", "wrong", "text"),
    [
        (GELU, lambda layer, x: functional.gelu(x[0], approximate="tanh"), "formula of GELU"),
        (TANH_GELU, lambda layer, x: functional.gelu(x[0]), "formula of GELU"),
        (BATCH_NORM, lambda layer, x: layer.eval()(x[0]), "running statistics"),
        (GROUP_NORM, sample_variance, "n - 1 in place of n as the divisor"),
        (VARIANCE, lambda layer, x: x[0] - x[0].var(dim=1, keepdim=True, correction=0), "n in place of n - 1"),
        (BY_N, lambda layer, x: x[0] - x[0].var(dim=1, keepdim=True), "n - 1 in place of n as the divisor in var()"),
        (BY_PLACE, lambda layer, x: x[0] - x[0].std(1, keepdim=True), "n - 1 in place of n as the divisor in var()"),
        (SQUARED, lambda layer, x: x[0] - x[0].var(1, keepdim=True), "n - 1 in place of n as the divisor of a mean"),
        (GELU, lambda layer, x: x[0] * torch.sigmoid(1.702 * x[0]), "x * sigmoid(1.702 * x) in place of GELU"),
        (SOFTMAX, lambda layer, x: functional.softmax(x[0] * 0.69314718, dim=1), "powers of 2 in place of"),
        (SOFTMAX, lambda layer, x: functional.softmax(x[0], dim=0), "along another dimension"),
        (UNIT, lambda layer, x: functional.normalize(x[0], dim=0), "along another dimension"),
        (CENTRED, lambda layer, x: x[0] - x[0].mean(0, True), "along another dimension"),
        (SOFTMAX, lambda layer, x: x[0].view(32, 48).softmax(1).view(48, 32), "runs in memory"),
        (LEAKY, lambda layer, x: functional.leaky_relu(x[0]), "slope of 0.01"),
        (POOL, lambda layer, x: functional.avg_pool2d(x[0], 3, padding=1, count_include_pad=False), "padding counted"),
    ],
)
def test_another_formula(parts: tuple[str, str, str, str], wrong: Wrong, text: str, tmp_path: Path) -> None:
    judged = Judged(tmp_path, parts)
    found = hypotheses.mistake(
        [judged.output(wrong)], judged.expectation, judged.reference, judged.case, only_formulas=True
    )
    assert found and text in found.text


def test_another_formula_with_the_error_of_a_coarse_format_is_wrong_values(tmp_path: Path) -> None:
    judged = Judged(tmp_path, LAYER_NORM)

    def unbiased(layer: torch.nn.Module, x: Sequence[torch.Tensor]) -> torch.Tensor:
        return (x[0] - x[0].mean(1, keepdim=True)) / (x[0].var(1, keepdim=True) + layer.eps).sqrt()

    outputs = [judged.output(unbiased)]
    check = verify(outputs, judged.expectation)
    assert check.status is Status.REDUCED_PRECISION
    told = hypotheses.with_formula(check, outputs, judged.expectation, judged.reference, judged.case)
    assert (told.status, told.precision) == (Status.WRONG_VALUES, None)
    assert "n - 1 in place of n" in told.detail and "tf32" not in told.detail


def test_a_coarse_format_is_no_other_formula(tmp_path: Path) -> None:
    judged = Judged(tmp_path, GELU)
    outputs = [judged.output(lambda layer, x: layer(x[0].bfloat16()).float())]

    assert verify(outputs, judged.expectation).status is Status.REDUCED_PRECISION
    search = judged.expectation, judged.reference, judged.case
    assert hypotheses.find(outputs, *search, only_formulas=True) is None
