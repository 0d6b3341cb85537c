"""The right answers: the float64 oracle, what happens if it is out of memory, and what the record says then."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import pytest
import torch

from kernel_harness.checking import oracle
from kernel_harness.checking.cases import Reference, plan
from kernel_harness.checking.compared import Expectation
from kernel_harness.checking.verify import unchanged, verify
from kernel_harness.core.precision import Precision, Rounding
from kernel_harness.ipc.packed import pack
from kernel_harness.problem.problem import Problem, load

SOURCE = """
import torch

N = 40

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(N, N))

    def forward(self, x):
        {check}
        return x @ self.weight

def get_inputs():
    return [torch.randn(N, N)]

STRESS = {{"normal": {{}}}}
"""
OUT_OF_MEMORY = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 12 bytes."
# In the model: raises for a float64 input as often as `failures.left` says.
FAILS_IN_FLOAT64 = """
        import failures
        if x.dtype == torch.float64 and failures.left:
            failures.left -= 1
            raise failures.error
"""
ERROR_SCALE = """
def error_scale(x):
    import failures
    if failures.left:
        failures.left -= 1
        raise failures.error
    return x.abs()
"""

Failures = Callable[..., ModuleType]


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> Failures:
    """Installs the module `failures`, which a problem file asks for the error to raise, and how often."""

    def install(error: Exception, left: int = 1000) -> ModuleType:
        module = ModuleType("failures")
        module.__dict__.update(error=error, left=left)
        monkeypatch.setitem(sys.modules, "failures", module)
        return module

    return install


def problem(folder: Path, check: str = "", more: str = "") -> Problem:
    path = folder / "p.py"
    path.write_text(SOURCE.format(check=check.strip()) + more)
    return load("p", path)


def expectation(of: Problem) -> Expectation:
    case = next(case for case in plan(of, 1) if case.distribution == "normal")
    return Reference(of, "cpu", None).expectation(case)[1]


def test_the_oracle_is_the_model_in_float64(tmp_path: Path) -> None:
    found = expectation(problem(tmp_path))
    assert found.oracle is not None and found.oracle[0].dtype is torch.float64
    assert torch.allclose(found.oracle[0].float(), found.expected[0], atol=1e-4)
    assert found.oracle_missing == ""


@pytest.mark.parametrize(
    ("answer", "sliced"),
    [
        ("x.softmax(1), x > 0", True),
        ("(x - x.mean(0)) / x.var(0)", False),  # as BatchNorm does
        ("x * (1 + 1e-4 * x.mean())", False),
        ("nn.functional.dropout(x)", False),
        ("x @ x", False),
        ("x.T.softmax(1)", False),
        ("x.sum()", False),
        ("x[:3].softmax(1)", False),
        ("x.tanh() if len(x) == N else x.tanh()[:1]", False),
        ("x + self.weight.add_(1)", False),
    ],
)
def test_the_oracle_is_computed_in_slices_only_if_no_bit_changes(
    answer: str, sliced: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "p.py"
    path.write_text(SOURCE.format(check=f"nn = torch.nn\n        with torch.no_grad():\n            return {answer}"))
    of = load("p", path)
    packed = pack(of.inputs(1))
    _, whole = Reference(of, "cpu", None).expect(of, packed, "a call", "own")
    monkeypatch.setattr(oracle, "_SLICED_BYTES", 1000)
    reference = Reference(of, "cpu", None)
    found = [reference.expect(of, packed, "a call", "own")[1] for _ in range(2)]

    assert bool(reference._float64._slices(of, packed, whole.expected)) is sliced
    assert whole.oracle is not None
    for each in found:
        assert each.oracle is not None and each.rounded is not None
        assert all(map(unchanged, each.oracle, whole.oracle))
        rounded = each.rounded(Rounding(Precision.TF32))
        assert rounded is not None and [r.shape for r in rounded] == [o.shape for o in whole.oracle]


def test_a_model_that_cannot_run_in_float64_is_recorded_with_the_reason(tmp_path: Path, failures: Failures) -> None:
    failures(NotImplementedError("no kernel for Double\nsecond line"))
    found = expectation(problem(tmp_path, FAILS_IN_FLOAT64))
    check = verify(found.expected, found)

    assert found.oracle is None
    assert check.passed and asdict(check)["unchecked"] == (
        "precision was not checked: the reference cannot run in float64 (NotImplementedError: no kernel for Double)"
    )


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError(OUT_OF_MEMORY), MemoryError()], ids=repr
)
def test_out_of_memory_in_float64_is_retried(error: Exception, tmp_path: Path, failures: Failures) -> None:
    """A candidate that fills the device's memory must not switch off the precision check."""
    failures(error, left=1)
    found = expectation(problem(tmp_path, FAILS_IN_FLOAT64))
    assert found.oracle is not None and found.oracle_missing == ""


def test_the_cached_answers_are_freed_before_the_retry(tmp_path: Path, failures: Failures) -> None:
    installed = failures(RuntimeError(OUT_OF_MEMORY), left=0)
    of = problem(tmp_path, FAILS_IN_FLOAT64)
    first, second, *_ = plan(of, 1)
    reference = Reference(of, "cpu", None)
    reference.expectation(first)
    installed.left = 1  # type: ignore[attr-defined]
    reference.expectation(second)
    assert second in reference._expectations and first not in reference._expectations


def test_out_of_memory_in_the_retry_is_recorded(tmp_path: Path, failures: Failures) -> None:
    failures(RuntimeError(OUT_OF_MEMORY))
    found = expectation(problem(tmp_path, FAILS_IN_FLOAT64))
    assert found.oracle is None
    assert "too little memory for the reference in float64 (RuntimeError: DefaultCPUAllocator" in found.oracle_missing


def test_out_of_memory_of_the_error_scale_is_retried(tmp_path: Path, failures: Failures) -> None:
    failures(torch.OutOfMemoryError("CUDA out of memory."), left=1)
    assert expectation(problem(tmp_path, more=ERROR_SCALE)).scale is not None


def test_another_error_of_the_error_scale_is_raised(tmp_path: Path, failures: Failures) -> None:
    failures(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        expectation(problem(tmp_path, more=ERROR_SCALE))


def test_inputs_and_weights_are_rounded_before_the_float64_answer(tmp_path: Path) -> None:
    of, tf32 = problem(tmp_path), Rounding(Precision.TF32)
    x, weight = of.inputs(1)[0], of.model("cpu").weight.detach()
    _, found = Reference(of, "cpu", None).expect(of, pack([x]), "a call", "own")
    assert found.rounded is not None
    answers = found.rounded(tf32)

    assert answers is not None and torch.equal(answers[0], tf32(x).double() @ tf32(weight).double())
    assert found.oracle is not None and torch.equal(found.oracle[0], x.double() @ weight.double())


@pytest.mark.parametrize(("allowed", "timed", "wanted"), [
    (None, False, True), (None, True, True), (Precision.TF32, False, True), (Precision.TF32, True, False),
])  # fmt: skip
def test_rounded_inputs_that_are_allowed_are_not_looked_for_in_timed_calls(
    allowed: Precision | None, timed: bool, wanted: bool, tmp_path: Path
) -> None:
    of = problem(tmp_path)
    _, found = Reference(of, "cpu", allowed).expect(of, pack(of.inputs(1)), "a call", "own", timed=timed)
    assert found.rounded is not None and found.searches is wanted


def test_out_of_memory_for_rounded_inputs_gives_no_answer(tmp_path: Path, failures: Failures) -> None:
    installed = failures(RuntimeError(OUT_OF_MEMORY), left=0)
    of = problem(tmp_path, FAILS_IN_FLOAT64)
    _, found = Reference(of, "cpu", None).expect(of, pack(of.inputs(1)), "a call", "own")
    installed.left = 1000  # type: ignore[attr-defined]
    assert found.rounded is not None and found.rounded(Rounding(Precision.TF32)) is None


def test_out_of_memory_of_the_float32_reference_is_raised(tmp_path: Path) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        expectation(problem(tmp_path, 'raise torch.OutOfMemoryError("CUDA out of memory.")'))


def test_the_name_of_a_case_has_its_sizes_if_there_are_any(tmp_path: Path) -> None:
    without = tmp_path / "q.py"
    without.write_text(SOURCE.format(check="").replace("N = 40", "").replace("N, N", "8, 8"))
    for of, name in ((problem(tmp_path), "N=40:normal"), (load("q", without), "normal")):
        assert name in [case.name for case in plan(of, 1)]
