"""What the checks of a problem cannot tell, and the variations of inputs that they use where a file names none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernel_harness.checking.cases import Reference, plan
from kernel_harness.core.remark import sentences
from kernel_harness.explain.sensitivity import remarks
from kernel_harness.ipc.packed import pack
from kernel_harness.problem.problem import Problem, load

SOURCE = """
import torch

N = 2048

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 4))
        self.hidden = lambda x: x * self.weight.sum()

    def forward(self, x):
        return {answer}

def get_inputs():
    return [{inputs}]
"""


def problem(folder: Path, answer: str, inputs: str = "torch.rand(N)") -> Problem:
    path = folder / "p.py"
    path.write_text(SOURCE.format(answer=answer, inputs=inputs))
    return load("p", path)


def said(of: Problem) -> str:
    return sentences(remarks(Reference(of, "cpu", None), plan(of, 1)))


CANNOT_TELL = "Remark: the checks of this problem cannot tell a right kernel from one that returns "
OTHER = "one that returns the answer to other inputs."


@pytest.mark.parametrize(("answer", "expected"), [
    ("x * 2", ""),
    ("x.softmax(0)", ""),
    ("torch.relu(x - 1e4)", f"{CANNOT_TELL}zeros or one that returns a constant or {OTHER}"),
    ("x.mean()", ""),
    ("x.cumprod(0)", f"{CANNOT_TELL}zeros for the smaller half of the numbers."),
    ("(x.cumprod(0)[:, None] + 0 * x).T, x > 0.5", ""),
    ("torch.ones_like(x)", f"{CANNOT_TELL}a constant or {OTHER}"),
    ("torch.arange(N) + 0 * x", f"{CANNOT_TELL}the answer to other inputs."),
])  # fmt: skip
def test_a_wrong_answer_that_would_pass_is_named(answer: str, expected: str, tmp_path: Path) -> None:
    assert said(problem(tmp_path, answer)) == expected


def test_zeros_of_a_right_answer_are_no_wrong_answer(tmp_path: Path) -> None:
    """One of 2^18 elements is 1, so a sample of the right answer has zeros only."""
    one_hot = "torch.nn.functional.one_hot(x, 1 << 18).float()"
    assert said(problem(tmp_path, one_hot, "torch.randint(0, 1 << 18, (2,))")) == ""


@pytest.mark.parametrize(("change", "expected"), [(5e-4, f"{CANNOT_TELL}a constant or {OTHER}"), (2e-3, "")])
def test_a_wrong_answer_that_fails_by_little_is_named(change: float, expected: str, tmp_path: Path) -> None:
    """The limit of the elements is 2e-4. Half of them are wrong by `change`. Inputs of few numbers are not varied."""
    assert said(problem(tmp_path, f"1 + {change} * x", "torch.randint(0, 2, (N,)).float()")) == expected


def test_a_problem_that_only_its_own_inputs_do_not_show_is_told_by_others(tmp_path: Path) -> None:
    """The inputs are between 0 and 1, so the answer to them is 1; shifted to mean zero they are not."""
    assert said(problem(tmp_path, "torch.where(x >= 0, torch.ones_like(x), x)")) == ""


def test_a_reference_that_is_far_from_float64_is_named(tmp_path: Path) -> None:
    assert "the reference itself has a relative error of" in said(problem(tmp_path, "x + 1e8 - 1e8"))


@pytest.mark.parametrize("answer", ["self.hidden(x)", "x @ torch.ones(N, 3)", "(x, [x.float() * torch.zeros(N)])"])
def test_the_oracle_runs_though_the_model_holds_a_function_or_makes_float32_tensors(
    answer: str, tmp_path: Path
) -> None:
    of = problem(tmp_path, answer)
    found = Reference(of, "cpu", None).expect(of, pack(of.inputs(1)), "a call", "own")[1]
    assert found.oracle_missing == "" and found.oracle is not None
    assert all(each.dtype is torch.float64 for each in found.oracle)


def test_numbers_that_a_model_draws_are_the_same_in_float64(tmp_path: Path) -> None:
    of = problem(tmp_path, "x @ torch.randn(N, 3)")
    found = Reference(of, "cpu", None).expect(of, pack(of.inputs(1)), "a call", "own")[1]
    assert found.oracle is not None
    torch.testing.assert_close(found.oracle[0].float(), found.expected[0])


# Variations of the problem's own inputs.


@pytest.mark.parametrize("distribution", ["normal", "scaled"])
@pytest.mark.parametrize("dtype", ["torch.float32", "torch.float16"])
def test_a_variation_has_a_small_mean_and_keeps_zeros_symmetry_and_dtype(
    distribution: str, dtype: str, tmp_path: Path
) -> None:
    draw = f"(lambda a: (a + a.T).triu(-3).tril(3).to({dtype}))(torch.rand(64, 64))"
    own, varied = (problem(tmp_path, "x", draw).inputs(3, name)[0] for name in ("own", distribution))
    assert varied.dtype is own.dtype and torch.equal(varied, varied.T)
    assert torch.equal(varied == 0, own == 0)
    assert 0 < varied.double().mean() < 0.1 * varied.double().std()


def test_a_variation_has_standard_deviation_one(tmp_path: Path) -> None:
    assert problem(tmp_path, "x", "5 + 3 * torch.rand(N)").inputs(3, "normal")[0].std() == pytest.approx(1, rel=1e-2)


@pytest.mark.parametrize(("distribution", "factor"), [("scaled", 16), ("small", 1 / 16)])
def test_scaled_and_small_inputs_are_normal_ones_times_a_power_of_two(
    distribution: str, factor: float, tmp_path: Path
) -> None:
    of = problem(tmp_path, "x")
    torch.testing.assert_close(of.inputs(1, distribution)[0], factor * of.inputs(1, "normal")[0])


def test_sparse_inputs_are_the_first_the_last_and_some_other_numbers(tmp_path: Path) -> None:
    of = problem(tmp_path, "x")
    (own,), (sparse,) = (of.inputs(1, distribution) for distribution in ("own", "sparse"))
    kept = sparse != 0

    assert torch.equal(sparse[kept], own[kept]) and 8 < kept.sum() <= 64
    assert torch.equal(sparse.flatten()[:4], own.flatten()[:4])
    assert torch.equal(sparse.flatten()[-4:], own.flatten()[-4:])


@pytest.mark.parametrize(("answer", "inputs", "named"), [
    ("(x + y + 1e-4 * x * y).mean()", "*torch.rand(2, N)", True),
    ("(x * y).mean()", "*torch.rand(2, N)", False),
    ("(x + y).mean()", "*torch.rand(2, N)", False),  # the order makes no difference
    ("x - y", "*torch.rand(2, N)", False),
    ("torch.linalg.cholesky(x + 0 * y)", "*(lambda a: (a @ a.T + torch.eye(9), a))(torch.rand(9, 9))", False),
], ids=["little weight", "product", "sum", "difference", "cholesky"])  # fmt: skip
def test_a_wrong_order_of_the_inputs_that_would_pass_is_named(
    answer: str, inputs: str, named: bool, tmp_path: Path
) -> None:
    path = tmp_path / "p.py"
    path.write_text(SOURCE.format(answer=answer, inputs=inputs).replace("forward(self, x)", "forward(self, x, y)"))
    assert ("reads its inputs in another order" in said(load("p", path))) is named


@pytest.mark.parametrize(("inputs", "told"), [
    ("torch.rand(N), torch.arange(N) > 9, 3.5", "input 2 (y) and input 3 (z)"),
    ("torch.rand(N), torch.rand(N) > 0.5, 3.5", "input 3 (z)"),
    ("torch.rand(N), torch.randint(0, 9, (N,)), float(torch.rand(()))", ""),
])  # fmt: skip
def test_inputs_with_one_value_in_all_checks_are_named(inputs: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    path.write_text(
        SOURCE.format(answer="x * y * z", inputs=inputs).replace("forward(self, x)", "forward(self, x, y, z)")
    )
    remark = f"Remark: {told} had one value in all checks at this size, so a kernel that does not read it would pass."
    assert said(load("p", path)) == (remark if told else "")


def test_an_output_may_be_a_parameter(tmp_path: Path) -> None:
    assert said(problem(tmp_path, "self.weight, x * 2")) == ""


def test_a_variation_leaves_the_drawn_float64_inputs_as_they_are(tmp_path: Path) -> None:
    of = problem(tmp_path, "x", "KEPT")
    kept = of.module.KEPT = torch.rand(2048, dtype=torch.float64)
    before = kept.clone()
    (varied,) = of.inputs(1, "normal")

    assert torch.equal(kept, before) and varied.std() == pytest.approx(1, rel=1e-2)


@pytest.mark.parametrize("choices", [
    "torch.randint(0, 2, (N,)).float() * 2 - 1", "torch.randint(0, 1000, (N,)).float()", "torch.randint(0, 9, (N,))",
    "torch.rand(N) > 0.5", "torch.tensor([0.5, 0.1])", "2.5", "None", "torch.full((N,), torch.inf)",
])  # fmt: skip
def test_choices_and_few_numbers_are_not_varied(choices: str, tmp_path: Path) -> None:
    of = problem(tmp_path, "x", choices)
    own, varied = of.inputs(3)[0], of.inputs(3, "normal")[0]
    assert torch.equal(own, varied) if isinstance(own, torch.Tensor) else own == varied


def named(of: Problem) -> list[str]:
    reference = Reference(of, "cpu", None)
    timed = (case for case in plan(of, 1) if case.timed_shape and not case.random_parameters)
    return [case.distribution for case in timed if not case.optional or reference.works(case)]


def test_a_file_without_stress_is_checked_on_variations_of_its_inputs(tmp_path: Path) -> None:
    of = problem(tmp_path, "x * 2")
    assert named(of) == ["normal", "own", "scaled", "small"]
    assert Reference(of, "cpu", None).other_distributions() == ["normal", "scaled", "small", "spikes"]


@pytest.mark.parametrize(("answer", "inputs"), [
    ("x.sqrt()", "torch.rand(N)"), ("x * 2", "torch.ones(N)"), ("x / x", "torch.zeros(N)"),
])  # fmt: skip
def test_variations_without_a_finite_answer_or_without_a_change_are_left_out(
    answer: str, inputs: str, tmp_path: Path
) -> None:
    of = problem(tmp_path, answer, inputs)
    assert named(of) == ["own"] and Reference(of, "cpu", None).other_distributions() == []


def test_an_answer_that_is_not_finite_decides_nothing_for_a_variation_only(tmp_path: Path) -> None:
    of = problem(tmp_path, "x.sqrt()")
    reference = Reference(of, "cpu", None)
    decides = {
        name: reference.decides(reference.expect(of, pack(of.inputs(1, name)), "a call", name)[1])
        for name in ("own", "normal")
    }
    assert decides == {"own": True, "normal": False}


def test_the_case_with_the_problem_s_own_inputs_is_poisoned(tmp_path: Path) -> None:
    assert [case.distribution for case in plan(problem(tmp_path, "x"), 1) if case.poison] == ["own"]


def without_parameters(folder: Path, answer: str, inputs: str = "torch.rand(N)") -> Problem:
    path = folder / "plain.py"
    weight = "self.weight = torch.nn.Parameter(torch.randn(4, 4))"
    path.write_text(SOURCE.replace(weight, "pass").format(answer=answer, inputs=inputs))
    return load("plain", path)


@pytest.mark.parametrize(("answer", "signs"), [
    ("x.amax(0)", {"negative"}),
    ("x.argmin(0)", {"positive"}),
    ("torch.nn.functional.max_pool1d(x[None], 4)", {"negative"}),
    ("x.sort().values", {"negative", "positive"}),
    ("x.softmax(0)", set()),
    ("x.clamp(0.1, 0.5)", set()),
])  # fmt: skip
def test_inputs_of_one_sign_show_where_a_search_starts(answer: str, signs: set[str], tmp_path: Path) -> None:
    of = without_parameters(tmp_path, answer)
    assert {*named(of)} & {"negative", "positive"} == signs
    assert not {*named(problem(tmp_path, answer))} & {"negative", "positive"}  # a model with a parameter


def test_numbers_of_one_sign_are_far_from_zero_and_zeros_stay(tmp_path: Path) -> None:
    of = without_parameters(tmp_path, "x", "torch.rand(N).mul_(torch.arange(N) % 3 > 0)")
    own, low, high = (of.inputs(3, name)[0] for name in ("own", "negative", "positive"))
    assert torch.equal(low == 0, own == 0) and torch.equal(low, -high)
    assert high[own != 0].min() >= 2


@pytest.mark.parametrize(("answer", "sparse"), [("torch.nn.functional.normalize(x, dim=0)", True), ("x.log()", False)])
def test_zeros_show_what_a_model_without_parameters_takes_them_for(answer: str, sparse: bool, tmp_path: Path) -> None:
    assert ("sparse" in named(without_parameters(tmp_path, answer))) is sparse
    assert "sparse" not in named(problem(tmp_path, answer))


@pytest.mark.parametrize(("inputs", "crowded"), [
    ("torch.randint(-100, 100, (N,))", True),
    ("torch.randint(-128, 128, (N,), dtype=torch.int8)", True),
    ("torch.randperm(N)", False),  # none repeats, so a kernel may rely on that
    ("torch.randint(0, 100, (N,)).cumsum(0)", False),  # offsets
    ("torch.randint(0, 10, (N,))", False),  # classes
    ("torch.rand(N)", False),
])  # fmt: skip
def test_whole_numbers_are_crowded_where_they_may_repeat(inputs: str, crowded: bool, tmp_path: Path) -> None:
    of = without_parameters(tmp_path, "x.sum()", inputs)
    assert ("crowded" in named(of)) is crowded
    own, changed = of.inputs(3)[0], of.inputs(3, "crowded")[0]
    assert torch.equal(own, changed) is not crowded and own.dtype == changed.dtype
    assert changed.max() == own.max() and changed.min() >= own.min()
    assert changed[own.argsort()].diff().ge(0).all()  # the order stays
