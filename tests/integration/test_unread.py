"""Elements of an input that a kernel with wrong values does not read are named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_harness import Evaluator
from kernel_harness.core.remark import RemarkKind
from kernel_harness.core.status import Status
from kernel_harness.explain import unread

PROBLEM = """
import torch

R, N = 48, 1024

class Model(torch.nn.Module):
    def forward(self, x, y):
        return torch.triu(x[:, :R]).exp().sum(dim=1) + (x * y).sum(dim=1)

def get_inputs():
    return [torch.rand(R, N), torch.rand(R, N)]
"""
READ = "(x * y).sum(dim=1)"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search is never too slow, however busy the machine is."""
    monkeypatch.setattr(unread, "_LONGEST_S", 60.0)


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluator]:
    path = tmp_path_factory.mktemp("unread") / "sums.py"
    path.write_text(PROBLEM)
    with Evaluator(path, device="cpu", quick=True) as evaluator:
        yield evaluator


def mistakes(evaluator: Evaluator, read: str) -> list[str]:
    source = PROBLEM.replace("class Model", "class ModelNew").replace(READ, read)
    result = evaluator.evaluate(source)
    assert result.status in (Status.WRONG_VALUES, Status.REDUCED_PRECISION), result.reason
    return [remark.text for remark in result.remarks if remark.kind is RemarkKind.MISTAKE]


@pytest.mark.parametrize(
    ("read", "where"),
    [
        ("(x * y)[:, :-1].sum(dim=1)", "input 1 (x) at the last of 1024 indices of dimension 1"),
        ("(x * y)[:, :-37].sum(dim=1)", "input 1 (x) at the last 37 of 1024 indices of dimension 1"),
        ("(x * y)[:, 5:].sum(dim=1)", "input 2 (y) at the first 5 of 1024 indices of dimension 1"),
        ("(x * y).view(R, -1, 64)[:, :, :63].sum(dim=(1, 2))", "indices 63, 127, ... (each 64th of 1024)"),
        ("(x * y).view(R, -1, 8)[:, :, 1:].sum(dim=(1, 2))", "indices 0, 8, ... (each 8th of 1024)"),
    ],
    ids=["last", "tail", "head", "last-thread", "first-thread"],
)
def test_what_a_sum_leaves_out_is_named(read: str, where: str, evaluator: Evaluator) -> None:
    found = mistakes(evaluator, read)
    assert len(found) == 1 and where in found[0], found


@pytest.mark.parametrize("read", ["(x * y).sum(dim=1) * 1.25", "(x * y).sum(dim=1).round()"])
def test_nothing_is_named_where_all_is_read(read: str, evaluator: Evaluator) -> None:
    assert not any("does not read" in text for text in mistakes(evaluator, read))


def test_an_input_has_the_name_of_its_own_argument(tmp_path: Path) -> None:
    """A number before it is an argument, too, and no input with elements."""
    path, source = tmp_path / "scaled.py", PROBLEM.replace("x, y", "scale, x").replace("x * y", "x * scale")
    source = source.replace("[torch.rand(R, N), ", "[1.5, ")
    path.write_text(source)
    with Evaluator(path, device="cpu", quick=True) as scaled:
        candidate = source.replace("class Model", "class ModelNew").replace("(x * scale)", "(x * scale)[:, :-37]")
        texts = [remark.text for remark in scaled.evaluate(candidate).remarks if remark.kind is RemarkKind.MISTAKE]

    assert len(texts) == 1 and texts[0].startswith("The kernel does not read input 1 (x) at the last 37 of 1024 "), (
        texts
    )
