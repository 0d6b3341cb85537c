"""Problems of every kind that KernelBench has: a copy of the reference passes, under emulation and through a worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_harness.api import Evaluator
from kernel_harness.core.status import Status

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
        assert not any(check.unchecked for check in result.checks)
        changes = "class ModelNew(Model):\n    def forward(self, x):\n        x.add_(1)\n        return x * 2 - 1\n"
        if kind == "a model that changes its input":
            assert evaluator.evaluate(f"{source}\n{changes}").status is Status.PASSED


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
