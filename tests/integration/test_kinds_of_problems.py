"""Problems of every kind that KernelBench has: a copy of the reference passes, under emulation and through a worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_harness.api import Evaluator
from kernel_harness.checking.cases import plan
from kernel_harness.core.status import Status
from kernel_harness.device import named
from kernel_harness.problem.candidate import Candidate
from kernel_harness.problem.problem import Problem, load
from kernel_harness.results.record import Result
from kernel_harness.session.run import SilentObserver
from kernel_harness.session.session import Session
from kernel_harness.session.settings import Settings

pytestmark = pytest.mark.slow

# Each kind: the body of the constructor, of forward, and the inputs.
KINDS = {
    "train mode, dropout and BatchNorm": (
        "self.norm = nn.BatchNorm1d(8); self.drop = nn.Dropout(0.5); self.weight = nn.Parameter(torch.randn(8, 8))",
        "return self.drop(self.norm(x @ self.weight))",
        "torch.rand(64, 8)",
    ),
    "integer targets, a bool mask, a scalar and one element as output": (
        "self.loss = nn.CrossEntropyLoss()",
        "return self.loss(x * mask * scale, targets)",
        "torch.rand(64, 8), torch.rand(64, 8) > 0.5, torch.randint(0, 8, (64,)), 2.5",
    ),
    "tuples and lists as inputs and several nested outputs": (
        "pass",
        "return [x[0] + x[1][0], (x[1][1].sum(), {'n': x[0].argmax(1)})], None",
        "(torch.rand(64, 8), [torch.rand(64, 8), torch.rand(3)])",
    ),
    "seventeen dimensions": ("pass", "return (2 * x).reshape((2,) * 17)", "torch.rand(1 << 17)"),
    "a model that changes its input": ("pass", "return x.mul_(2) + 1", "torch.rand(64, 8)"),
    "an LSTM with states that it draws": (
        "self.cell = nn.LSTM(8, 4, batch_first=True)",
        "return self.cell(x, (torch.randn(1, 64, 4, device=x.device), torch.zeros(1, 64, 4, device=x.device)))[0]",
        "torch.rand(64, 3, 8)",
    ),
}
SOURCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x{more}):
        {forward}

def get_inputs():
    return [{inputs}]
"""


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_copy_of_the_reference_passes(kind: str, tmp_path: Path) -> None:
    init, forward, inputs = KINDS[kind]
    more = ", mask, targets, scale" if "mask" in forward else ""
    source = SOURCE.format(init=init, forward=forward, inputs=inputs, more=more)
    (tmp_path / "p.py").write_text(source)
    with Evaluator(tmp_path / "p.py", device="cpu", budget_s=0.1) as evaluator:
        result = evaluator.evaluate(source + "\nModelNew = Model\n")
        assert result.status is Status.PASSED, result.reason
        assert not any("float64" in check.unchecked for check in result.checks)
        changes = "class ModelNew(Model):\n    def forward(self, x):\n        x.add_(1)\n        return x * 2 - 1\n"
        if kind == "a model that changes its input":
            assert evaluator.evaluate(f"{source}\n{changes}").status is Status.WRONG_VALUES


def test_files_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    source = SOURCE.format(init="pass", forward="return x * 2", inputs="torch.rand(64, 8)", more="")
    (tmp_path / "p.py").write_text(source, encoding="utf-8-sig")
    (tmp_path / "kernel.py").write_text(source + "\nModelNew = Model\n", encoding="utf-8-sig")
    with Evaluator(tmp_path / "p.py", device="cpu", budget_s=0.1) as evaluator:
        assert evaluator.evaluate(tmp_path / "kernel.py").status is Status.PASSED


NUMBERS = SOURCE.format(
    init="pass",
    more="",
    inputs="torch.rand(64, 8)",
    forward="return {'mean': x.mean().item(), 'twice': 2 * x, 'count': 64, 3: 'rows'}",
)
# The order of the items is another one, and so is the order in which the mean is computed.
OTHER_ORDER = "return {3: 'rows', 'count': 64, 'twice': x + x, 'mean': float(x.double().sum(0).sum()) / x.numel()}"


@pytest.mark.parametrize(
    ("forward", "status"),
    [
        (OTHER_ORDER, Status.PASSED),
        (OTHER_ORDER.replace("'mean': ", "'mean': 1.01 * "), Status.WRONG_VALUES),
        (OTHER_ORDER.replace("'rows'", "'columns'"), Status.WRONG_SHAPE),
        (OTHER_ORDER.replace("'count': 64", "'count': 63"), Status.WRONG_VALUES),
        (OTHER_ORDER.replace("'twice'", "'double'"), Status.WRONG_SHAPE),
    ],
)
def test_a_dictionary_has_no_order_and_a_float_is_compared_like_a_tensor(
    forward: str, status: Status, tmp_path: Path
) -> None:
    (tmp_path / "p.py").write_text(NUMBERS)
    source = SOURCE.format(init="pass", more="", inputs="", forward=forward).replace("Model", "ModelNew", 1)
    with Evaluator(tmp_path / "p.py", device="cpu", budget_s=0.2) as evaluator:
        result = evaluator.evaluate(source)

    assert result.status is status, result.reason


MEAN = SOURCE.format(
    init="pass", more=", y", inputs="torch.rand(512, 300), torch.rand(512, 300)", forward="return {answer}"
)
# Too few numbers are left out to change the mean of all by more than a ten-thousandth.
LEFT_OUT = {"the first": "d[8:].sum()", "the last": "d[:-4].sum()", "none": "d.double().sum().float()"}


@pytest.mark.parametrize("numbers", list(LEFT_OUT))
def test_a_mean_of_very_many_numbers_leaves_none_out(numbers: str, tmp_path: Path) -> None:
    problem = MEAN.format(answer="((x - y) ** 2).mean()")
    (tmp_path / "p.py").write_text(problem)
    answer = f"(lambda d: {LEFT_OUT[numbers]} / d.numel())(((x - y) ** 2).flatten())"
    with Evaluator(tmp_path / "p.py", device="cpu", budget_s=0.2) as evaluator:
        result = evaluator.evaluate(MEAN.format(answer=answer).replace("Model", "ModelNew", 1))

    assert result.status is (Status.PASSED if numbers == "none" else Status.WRONG_VALUES), result.reason
    assert [case.rpartition(":")[2] for case in result.settings.cases].count("sparse") == 1


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("x.amax(1)", "x.amax(1).clamp_min(torch.finfo(x.dtype).tiny)"), ("x.amin(1)", "x.amin(1).clamp_max(1)")],
)
def test_a_search_that_starts_at_a_number_is_wrong(right: str, wrong: str, tmp_path: Path) -> None:
    problem = SOURCE.format(init="pass", more="", inputs="torch.rand(64, 300)", forward=f"return {right}")
    (tmp_path / "p.py").write_text(problem)
    with Evaluator(tmp_path / "p.py", device="cpu", budget_s=0.1) as evaluator:
        results = [
            evaluator.evaluate(problem.replace(right, forward).replace("Model", "ModelNew", 1))
            for forward in (right, wrong)
        ]

    assert [result.status for result in results] == [Status.PASSED, Status.WRONG_VALUES], results[0].reason
    assert "start the search for a m" in " ".join(remark.advice for remark in results[1].remarks)


def checked_alone(source: str, case: str, problem: Problem, folder: Path) -> Result:
    """The result of a candidate that is checked only on the case `case`."""
    file = folder / "kernel.py"
    file.write_text(source.replace("Model", "ModelNew", 1))
    with Session(problem, named("cpu"), Settings(seed=1, case=case), SilentObserver()) as session:
        (result,) = session.judge_one(Candidate("kernel", file, file.read_text()))
    return result


def test_a_sparse_case_finds_a_number_left_out_if_it_is_checked_alone(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(MEAN.format(answer="((x - y) ** 2).mean()"))
    problem = load("p", tmp_path / "p.py").on(emulated=True)
    (sparse,) = [case.name for case in plan(problem, 1) if case.distribution == "sparse"]
    wrong = MEAN.format(answer=f"(lambda d: {LEFT_OUT['the first']} / d.numel())(((x - y) ** 2).flatten())")
    result = checked_alone(wrong, sparse, problem, tmp_path)

    assert result.status is Status.WRONG_VALUES, result.reason


def test_a_candidate_for_which_no_case_could_be_checked_failed_in_no_case(tmp_path: Path) -> None:
    """The variations change no whole number."""
    source = SOURCE.format(init="pass", more="", inputs="torch.arange(64).view(8, 8)", forward="return x * 2")
    (tmp_path / "p.py").write_text(source)
    problem = load("p", tmp_path / "p.py").on(emulated=True)
    (small,) = [case.name for case in plan(problem, 1) if case.distribution == "small"]
    result = checked_alone(source, small, problem, tmp_path)

    assert result.status is Status.UNSUPPORTED
    assert result.reason.endswith("Choose another --case.")
    assert result.reproduce and "--case" not in result.reproduce


STEPS = SOURCE.format(
    init="pass", more=", y", inputs="torch.rand(256, 300), torch.rand(300, 256)", forward="return {answer}"
)


@pytest.mark.parametrize(
    ("product", "status"), [("(x.double() @ y.double())", Status.PASSED), ("(x @ y + 0.001)", Status.WRONG_VALUES)]
)
def test_the_last_bits_decide_few_whole_numbers(product: str, status: Status, tmp_path: Path) -> None:
    """About 65,536 products are rounded, of which some are within the error of a float32 sum from a half."""
    (tmp_path / "p.py").write_text(STEPS.format(answer="torch.round((x @ y) * 64).int()"))
    answer = STEPS.format(answer=f"torch.round({product} * 64).int()").replace("Model", "ModelNew", 1)
    with Evaluator(tmp_path / "p.py", device="cpu", budget_s=0.2) as evaluator:
        result = evaluator.evaluate(answer)

    assert result.status is status, result.reason


@pytest.mark.parametrize(("forward", "told"), [("x.square().mean()", True), ("x.square()", False)])
def test_a_problem_whose_outputs_are_too_small_to_show_a_precision_says_so(
    forward: str, told: bool, tmp_path: Path
) -> None:
    inputs = "torch.rand(64, 64)"
    source = SOURCE.format(init="pass", forward=f"return {forward}", inputs=inputs, more="")
    (tmp_path / "p.py").write_text(source)
    with Evaluator(tmp_path / "p.py", device="cpu", budget_s=0.1) as evaluator:
        result = evaluator.evaluate(source + "\nModelNew = Model\n")
    assert result.status is Status.PASSED, result.reason
    assert ("Remark: precision was not checked: outputs of fewer than 1024 elements" in result.reason) is told


POOLED = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.nn.functional.avg_pool2d(x * x.sigmoid(), 2)

batch_size, channels = 128, 64
height = width = 256

def get_inputs():
    return [torch.randn(batch_size, channels, height, width)]

def get_init_inputs():
    return []
"""
REFUSING = """
class ModelNew(Model):
    def forward(self, x):
        {statement}
        return 1{factor} * super().forward(x)
"""
ALIGNED = 'if x.shape[-1] % 32: raise ValueError("whole tiles only")'


@pytest.mark.parametrize(
    ("statement", "factor", "status"),
    [
        (ALIGNED, "", Status.PASSED),
        (ALIGNED, ".5", Status.WRONG_VALUES),
        ('if x.shape[-1] != 256: raise ValueError("only 256")', "", Status.UNSUPPORTED),
        ("x.reshape(7, -1)", "", Status.RUNTIME_ERROR),
    ],
    ids=["for whole tiles", "wrong for whole tiles", "for one size", "an error of torch at every size"],
)
def test_a_candidate_that_refuses_sizes_that_were_chosen_for_a_cpu_is_judged_at_others(
    statement: str, factor: str, status: Status, tmp_path: Path
) -> None:
    (tmp_path / "pooled.py").write_text(POOLED)
    (tmp_path / "refuses.py").write_text(POOLED + REFUSING.format(statement=statement, factor=factor))
    with Evaluator(tmp_path / "pooled.py", device="cpu") as evaluator:
        result = evaluator.evaluate(tmp_path / "refuses.py")

    assert result.status is status, result.reason
    if status is Status.PASSED:
        (only,) = result.restricted_to[:1]
        assert "height=32,width=32" in only and result.timing is None and "sizes that were chosen" in result.reason
    if status is Status.WRONG_VALUES:
        shape = "batch_size=16,channels=8,height=32,width=32"
        assert f"--shape {shape} --case {shape}:normal" in result.reproduce
    if status in (Status.UNSUPPORTED, Status.RUNTIME_ERROR):  # at the sizes that it refused first
        shape = "batch_size=32,channels=64,height=16,width=16"
        assert f"--shape {shape} --case {shape}:normal" in result.reproduce
    if status is Status.UNSUPPORTED:
        assert "only 256" in result.reason and "Judge it on a GPU" in result.reason


LINEAR = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.relu(self.linear(x))

batch_size, in_features, out_features = 1024, 8192, 8192

def get_inputs():
    return [torch.randn(batch_size, in_features)]

def get_init_inputs():
    return [in_features, out_features]
"""
IN_CONSTRUCTOR = """
class ModelNew(Model):
    def __init__(self, columns, rows):
        super().__init__(columns, rows)
        {statement}
"""


@pytest.mark.parametrize(
    ("statement", "status"),
    [
        ("assert columns % 512 == 0, 'whole tiles only'", Status.PASSED),
        ("assert columns == 8192, 'only 8192'", Status.UNSUPPORTED),
        ("self.linear.reset()", Status.RUNTIME_ERROR),
    ],
    ids=["other sizes", "sizes for a CPU", "a mistake"],
)
def test_a_constructor_may_refuse_sizes(statement: str, status: Status, tmp_path: Path) -> None:
    (tmp_path / "linear.py").write_text(LINEAR)
    with Evaluator(tmp_path / "linear.py", device="cpu", budget_s=0.1) as evaluator:
        result = evaluator.evaluate(LINEAR + IN_CONSTRUCTOR.format(statement=statement))

    assert result.status is status, result.reason
    assert bool(result.restricted_to) == bool(result.timing) == (status is Status.PASSED)
    assert status is not Status.UNSUPPORTED or "only 8192" in result.reason
