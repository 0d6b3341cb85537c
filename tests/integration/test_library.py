"""The Python API: `evaluate` and `Evaluator`, as a program that writes kernels calls them."""

from __future__ import annotations

import doctest
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from support.command import ROOT
from support.product import PROBLEM_FILE, RIGHT

import kernel_harness
from kernel_harness import api
from kernel_harness.core.arms import BASELINE, CONTROL
from kernel_harness.core.errors import EnvironmentLacking
from kernel_harness.results.record import Result as RecordedResult
from kernel_harness.session import trusted_arms
from kernel_harness.session.session import Session

WRONG = RIGHT.replace("torch.matmul(A.T, B.T)", "torch.matmul(A.T, B.T) + 1")
RIGHT_CU = """// a matrix product by torch
#include <torch/extension.h>

torch::Tensor forward(torch::Tensor A, torch::Tensor B) { return torch::matmul(A.t(), B.t()); }
"""


@pytest.fixture(scope="module")
def right() -> kernel_harness.Result:
    return kernel_harness.evaluate("matmul_tt", RIGHT, device="cpu", budget_s=0.2)


@pytest.mark.slow
def test_a_right_kernel_passes(right: kernel_harness.Result) -> None:
    assert right.status is kernel_harness.Status.PASSED, right.reason


@pytest.mark.slow
def test_a_result_is_shown_in_one_line_and_as_a_table(right: kernel_harness.Result) -> None:
    assert re.fullmatch(r"<Result candidate, PASSED, [\d.e+-]+ ms, '.*'>", repr(right)) and len(repr(right)) < 300
    table = right._repr_html_()
    assert table.startswith("<table>") and "PASSED" in table and " ms" in table and "speedup" not in table


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"budget_s": -1}, "budget_s must be a positive number of seconds, not -1"),
        ({"budget_s": float("nan")}, "budget_s must be a positive number of seconds, not nan"),
        ({"timeout_s": 0}, "timeout_s must be a positive number of seconds, not 0"),
        ({"timeout_s": "60"}, "timeout_s must be a positive number of seconds, not '60'"),
        ({"timeout_s": None}, "timeout_s must be a positive number of seconds, not None"),
        ({"seed": "one"}, "seed must be a whole number or None, not 'one'"),
        ({"quick": 1}, "quick must be True or False, not 1"),
        ({"sanitize": "yes"}, "sanitize must be True or False, not 'yes'"),
        ({"shape": "M=64"}, "shape must be a mapping"),
        ({"shape": {"M": 64.0}}, r"shape\['M'\] must be a whole number, not 64.0"),
        ({"device": 0}, "device must be a string or None, not 0"),
        ({"precision": "fp16"}, "did you mean 'float16'"),
        ({"precision": 16}, "there is no precision 16"),
    ],
)
def test_a_wrong_argument_is_the_caller_s_error(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(kernel_harness.UserError, match=message):
        kernel_harness.evaluate("matmul_tt", RIGHT, **{"device": "cpu", **arguments})


def test_a_problem_or_a_source_of_another_type_is_the_caller_s_error(evaluator: kernel_harness.Evaluator) -> None:
    with pytest.raises(kernel_harness.UserError, match="problem must be a string or a Path, not int"):
        kernel_harness.evaluate(7, RIGHT)  # type: ignore[arg-type]
    with pytest.raises(kernel_harness.UserError, match="source must be a string or a Path, not function"):
        evaluator.evaluate(lambda x: x)  # type: ignore[arg-type]


@pytest.mark.slow
def test_quick_checks_fewer_shapes(right: kernel_harness.Result) -> None:
    quick = kernel_harness.evaluate("matmul_tt", RIGHT, device="cpu", budget_s=0.2, quick=True)
    assert quick.passed and quick.shapes_checked < right.shapes_checked


@pytest.mark.slow
def test_a_right_kernel_has_a_time(right: kernel_harness.Result) -> None:
    assert right.timing is not None and right.timing.time_ms > 0


def test_the_reward_of_a_right_kernel_is_that_of_a_wrong_one_and_more(evaluator: kernel_harness.Evaluator) -> None:
    assert (evaluator.reward(RIGHT), evaluator.reward(WRONG)) == (1.0, 0.0)


def test_a_candidate_s_process_collects_garbage(evaluator: kernel_harness.Evaluator) -> None:
    """The fork server imports torch without collections."""
    result = evaluator.evaluate(f"import gc\nif not gc.isenabled():\n    raise ValueError\n{RIGHT}")
    assert result.passed, result.reason


FALLS_BACK = """
import torch
from torch.utils.cpp_extension import load_inline

try:
    load_inline(name="wrong", cpp_sources="int f();", cuda_sources="{wrong} int f() {{ return 1; }}", functions=["f"])
except {caught}:
    pass
"""


@pytest.mark.parametrize(
    ("wrong", "caught", "status"),
    [
        ("nothing", "RuntimeError", kernel_harness.Status.PASSED),
        ("nothing", "ImportError", kernel_harness.Status.BUILD_ERROR),
        (r"#include <cusparse.h>\ncusparseHandle_t handle;\n", "RuntimeError", kernel_harness.Status.UNSUPPORTED),
    ],
)
def test_a_candidate_may_catch_what_torch_raises_for_a_failed_build(
    wrong: str, caught: str, status: kernel_harness.Status, evaluator: kernel_harness.Evaluator
) -> None:
    """What only the emulator cannot build is UNSUPPORTED all the same: on a GPU the build would not fail."""
    result = evaluator.evaluate(FALLS_BACK.format(wrong=wrong, caught=caught) + RIGHT)
    assert result.status is status, result.reason


def test_a_fault_of_the_candidate_is_a_result_and_no_exception(evaluator: kernel_harness.Evaluator) -> None:
    result = evaluator.evaluate("class ModelNew:\n    oops")
    assert result.status in (kernel_harness.Status.RUNTIME_ERROR, kernel_harness.Status.LOAD_ERROR)


@pytest.mark.slow
def test_it_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    kernel_harness.evaluate(PROBLEM_FILE, "print('noise')\nraise ValueError", device="cpu")
    assert capfd.readouterr() == ("", "")


def test_the_caller_s_random_generator_is_left_as_it_was(evaluator: kernel_harness.Evaluator) -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    result = evaluator.evaluate(RIGHT)

    assert result.passed, result.reason
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
def test_every_option_reaches_the_result() -> None:
    result = kernel_harness.evaluate(
        PROBLEM_FILE, RIGHT, device="cpu", shape={"M": 16}, precision="tf32", timeout_s=30.0, budget_s=0.2,
        baseline="torch", seed=5,
    )  # fmt: skip

    assert result.passed and result.shape["M"] == 16
    assert result.settings.seed == 5 and result.settings.baseline == "torch"
    assert result.settings.allowed_precision == "tf32"
    assert result.settings.budget_s == 0.2 and result.settings.limits["call_s"] == 30.0


# ----------------------------------------------------------------------------------------- the source


@pytest.mark.parametrize("as_text", [False, True], ids=["a Path", "a str"])
@pytest.mark.parametrize(("suffix", "source"), [(".py", RIGHT), (".cu", RIGHT_CU)])
def test_a_source_may_be_the_path_of_a_kernel_file(
    suffix: str, source: str, as_text: bool, tmp_path: Path, evaluator: kernel_harness.Evaluator
) -> None:
    path = tmp_path / f"product{suffix}"
    path.write_text(source)
    result = evaluator.evaluate(str(path) if as_text else path)

    assert (result.kernel, result.status) == ("product", kernel_harness.Status.PASSED), result.reason


def test_a_text_that_begins_as_c_plus_plus_is_a_cuda_file(evaluator: kernel_harness.Evaluator) -> None:
    result = evaluator.evaluate(RIGHT_CU)

    assert result.passed, result.reason
    assert result.title == "a matrix product by torch"


@pytest.mark.parametrize("name", ["not_there.py", "not_there.cu", "n" * 5000 + ".py"], ids=["py", "cu", "too long"])
def test_a_line_that_ends_as_a_file_name_is_a_path(name: str, evaluator: kernel_harness.Evaluator) -> None:
    with pytest.raises(kernel_harness.NotFound, match=f"there is no file {name}"):
        evaluator.evaluate(name)


def test_a_line_of_code_is_no_path(evaluator: kernel_harness.Evaluator) -> None:
    assert evaluator.evaluate("raise ValueError").status is kernel_harness.Status.LOAD_ERROR


def test_an_emulated_time_comes_without_a_speedup(evaluator: kernel_harness.Evaluator) -> None:
    result = evaluator.evaluate(RIGHT)

    assert result.emulated and result.timing, result.reason
    assert result.timing.time_ms > 0 and result.timing.speedup is None


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        ("def forward(self, A):\n        return A", "candidate.py:6: TypeError: forward takes 1 input (A), but the"),
        ("def forward(self, A, B, C):\n        return A", "candidate.py:6: TypeError: forward takes 3 inputs (A, B, C"),
        ("def forward(self, A, B):\n        return len()", "candidate.py:7: TypeError: len() takes exactly one"),
    ],
)
def test_a_type_error_names_the_line_of_forward_only_if_forward_cannot_be_called(
    forward: str, message: str, evaluator: kernel_harness.Evaluator
) -> None:
    result = evaluator.evaluate(f"import torch\n\n\nclass ModelNew(torch.nn.Module):\n\n    {forward}\n")

    assert result.status is kernel_harness.Status.RUNTIME_ERROR
    assert message in result.reason


# ---------------------------------------------------------------------------------- the caller's mistakes


def test_an_unknown_problem_is_the_callers_mistake() -> None:
    with pytest.raises(kernel_harness.NotFound, match="did you mean 'matmul_tt'"):
        kernel_harness.evaluate("matmul_t", RIGHT, device="cpu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tpu"}, "no device 'tpu'"),
        ({"baseline": "numpy"}, "no baseline 'numpy'"),
        ({"baseline": "torch.compile"}, "needs a GPU"),
        ({"precision": "float7"}, "no precision 'float7'"),
        ({"shape": {"Q": 1}}, "has no constant Q"),
        ({"shape": {"M": 0}}, "no elements"),
        ({"shape": {"M": -3}}, "negative dimension -3"),
    ],
)
def test_an_option_that_cannot_be_used_is_the_callers_mistake(options: dict[str, Any], message: str) -> None:
    with pytest.raises(kernel_harness.UserError, match=message):
        kernel_harness.evaluate(PROBLEM_FILE, RIGHT, **{"device": "cpu", **options})


@pytest.mark.parametrize(
    ("name", "message"),
    [("kernel.txt", "ends in .py or .cu"), ("gone.py", "no file"), ("torch.py", "is reserved")],
)
def test_a_path_that_is_no_kernel_file_is_the_callers_mistake(
    name: str, message: str, tmp_path: Path, evaluator: kernel_harness.Evaluator
) -> None:
    (tmp_path / "torch.py").write_text(RIGHT)
    with pytest.raises(kernel_harness.UserError, match=message):
        evaluator.evaluate(tmp_path / name)


# ---------------------------------------------------------------------------------------- the Evaluator


@pytest.fixture(scope="module")
def shared_evaluator() -> Iterator[kernel_harness.Evaluator]:
    with kernel_harness.Evaluator(PROBLEM_FILE, device="cpu", budget_s=0.2) as made:
        yield made


@pytest.fixture
def evaluator(shared_evaluator: kernel_harness.Evaluator) -> kernel_harness.Evaluator:
    """One that has judged a kernel, so that its baselines run."""
    if not processes(shared_evaluator):
        shared_evaluator.evaluate(RIGHT)
    return shared_evaluator


def processes(evaluator: kernel_harness.Evaluator) -> dict[str, psutil.Process]:
    """The worker processes that it keeps between calls."""
    assert evaluator._session is not None
    kept = evaluator._session.trusted_arms._idle
    return {name: psutil.Process(idle.client.worker.pid) for name, idle in kept.items()}


def test_the_baselines_are_kept_and_paused_between_calls(evaluator: kernel_harness.Evaluator) -> None:
    before = processes(evaluator)
    paused = {name: process.status() for name, process in before.items()}
    result = evaluator.evaluate(RIGHT)

    assert result.passed and result.timing
    assert paused == {BASELINE: psutil.STATUS_STOPPED, CONTROL: psutil.STATUS_STOPPED}
    assert processes(evaluator) == before


def test_each_call_gets_its_own_verdict(evaluator: kernel_harness.Evaluator) -> None:
    statuses = [evaluator.evaluate(source).status for source in (WRONG, RIGHT, "raise ValueError", RIGHT)]

    assert statuses == ["WRONG_VALUES", "PASSED", "LOAD_ERROR", "PASSED"]


def test_each_call_is_a_run_in_fresh_orders(evaluator: kernel_harness.Evaluator) -> None:
    first, second = (evaluator.evaluate(RIGHT) for _ in range(2))

    assert first.run != second.run
    assert first.measurement.orders != second.measurement.orders


@pytest.mark.parametrize("name", [BASELINE, CONTROL])
@pytest.mark.slow
def test_a_baseline_that_died_is_started_again(name: str, evaluator: kernel_harness.Evaluator) -> None:
    before = processes(evaluator)
    before[name].kill()
    result = evaluator.evaluate(RIGHT)
    after = processes(evaluator)

    assert result.passed and result.timing, result.reason
    assert [each for each in before if after[each] != before[each]] == [name]


@pytest.mark.slow
def test_a_worn_baseline_is_replaced(evaluator: kernel_harness.Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    before = processes(evaluator)
    monkeypatch.setattr(trusted_arms, "COHORTS_OF_A_PROCESS", 0)
    assert evaluator.evaluate(RIGHT).timing and not processes(evaluator)
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in before.values())
    monkeypatch.undo()

    assert evaluator.evaluate(RIGHT).timing
    assert set(processes(evaluator)) == set(before)


@pytest.mark.slow
def test_a_candidate_without_enough_memory_is_judged_again_without_the_baselines(
    evaluator: kernel_harness.Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `evaluate` would judge it, which starts the baselines after the checks."""
    judge, beside = Session._judge, []

    def judging(session: Session, *arguments: Any) -> Sequence[RecordedResult]:
        beside.append(len(session.trusted_arms._idle))
        if beside[-1]:
            failed = RecordedResult("candidate", kernel_harness.Status.RUNTIME_ERROR, "a text", {}, "")
            return [replace(failed, lacked_memory=True)]
        return judge(session, *arguments)

    monkeypatch.setattr(Session, "_judge", judging)

    assert evaluator.evaluate(RIGHT).passed
    assert beside == [2, 0]


@pytest.mark.slow
def test_after_an_exception_the_next_call_starts_new_processes() -> None:
    with kernel_harness.Evaluator(PROBLEM_FILE, device="cpu", budget_s=0.2) as evaluator:
        assert evaluator._session is not None
        evaluator._session.fork_server._process.kill()
        with pytest.raises(EnvironmentLacking):
            evaluator.evaluate(RIGHT)
        assert evaluator.evaluate(RIGHT).passed


@pytest.mark.slow
def test_closing_ends_every_process() -> None:
    before = set(psutil.Process().children(recursive=True))
    with kernel_harness.Evaluator(PROBLEM_FILE, device="cpu", budget_s=0.2) as evaluator:
        evaluator.evaluate(RIGHT)
        during = set(psutil.Process().children(recursive=True)) - before

    assert during
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in during)


def test_a_problem_that_cannot_be_opened_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(psutil.Process().children(recursive=True))

    def failing(session: Session) -> Session:
        raise kernel_harness.NoCompiler("no compiler")

    monkeypatch.setattr(Session, "__enter__", failing)
    with pytest.raises(kernel_harness.NoCompiler):
        kernel_harness.evaluate(PROBLEM_FILE, RIGHT, device="cpu")

    assert set(psutil.Process().children(recursive=True)) <= before


# ------------------------------------------------------------------------------------------ the package


@pytest.mark.slow
def test_the_examples_in_the_documentation_are_right() -> None:
    results = doctest.testmod(api)

    assert results.attempted >= 5
    assert not results.failed


def test_the_public_names_are_exported() -> None:
    assert all(getattr(kernel_harness, name).__name__ == name for name in kernel_harness.__all__)
    with pytest.raises(AttributeError, match="no attribute 'judge'"):
        kernel_harness.judge  # noqa: B018


def test_evaluate_and_the_evaluator_take_the_same_settings() -> None:
    of_evaluate, of_evaluator = (
        {name: (p.default, p.annotation) for name, p in inspect.signature(function).parameters.items()}
        for function in (kernel_harness.evaluate, kernel_harness.Evaluator)
    )
    of_evaluate.pop("source")

    assert of_evaluate == of_evaluator


def test_importing_the_package_does_not_import_the_judge() -> None:
    """Every worker process imports it."""
    script = "import sys, kernel_harness; print([m for m in sys.modules if m.startswith('kernel_harness.')])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_the_package_is_marked_as_typed() -> None:
    assert (ROOT / "kernel_harness" / "py.typed").is_file()
