"""Runs at several shapes, without a GPU: times at each, failures at one, and what each interface says."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.command import Finished, Harness
from support.product import PROBLEM_FILE, RIGHT

import kernel_harness
from kernel_harness import Status
from kernel_harness.cli.mcp import Tools
from kernel_harness.device.cpu import Emulated
from kernel_harness.problem import lookup
from kernel_harness.results.record import Result, from_line
from kernel_harness.session import further
from kernel_harness.session.run import SilentObserver
from kernel_harness.session.session import Session
from kernel_harness.session.settings import Settings
from kernel_harness.suite.store import SuiteStore

pytestmark = pytest.mark.slow

LISTED = {"M": 64, "K": 48, "N": 40}
TEXT = "M=64,K=48,N=40"
# A candidate is called twice at a further shape before it is timed there: with normal inputs and the problem's own.
CHECKED = 2
KERNEL = """
import os
import torch

class ModelNew(torch.nn.Module):
    calls = 0

    def forward(self, A, B):
        C = torch.matmul(A.T, B.T)
        if A.shape == (48, 64):
            self.calls += 1
            {there}
        return C
"""
KERNELS = {
    "right": "pass",
    "wrong_there": "C[3] += 1",
    "wrong_when_timed": f"C[3] += self.calls > {CHECKED}",
    "crashes_when_timed": f"if self.calls > {CHECKED}: os.abort()",
    "refuses": "raise ValueError('not at this shape')",
}
FOREIGN = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.relu(self.linear(x))

batch_size = 16
in_features = 96
out_features = 64

def get_inputs():
    return [torch.randn(batch_size, in_features)]

def get_init_inputs():
    return [in_features, out_features]
"""


def written(folder: Path, **texts: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, Harness]:
    """A run of all kernels at the problem's own size, a listed shape and a drawn one."""
    folder = tmp_path_factory.mktemp("run")
    kernels = written(folder / "kernels", **{name: KERNEL.format(there=there) for name, there in KERNELS.items()})
    harness = Harness(folder)
    words: list[str | Path] = ["--problem", PROBLEM_FILE, "--device", "cpu", "--budget", "0.5", "--json"]
    for name in KERNELS:
        words += ["--kernel", kernels / f"{name}.py"]
    return harness.run(*words, "--time-shapes", TEXT, "--time-shapes", "1"), harness


@pytest.fixture(scope="module")
def results(run: tuple[Finished, Harness]) -> dict[str, Result]:
    assert run[0].stdout, run[0].stderr
    return {result.kernel: result for result in map(from_line, run[0].stdout.splitlines())}


@pytest.mark.parametrize("kernel", ["right", "torch"])
def test_a_right_kernel_and_the_baseline_are_timed_at_each_shape(results: dict[str, Result], kernel: str) -> None:
    result = results[kernel]
    assert result.passed and result.is_timed_everywhere and len(result.further) == 2
    listed, drawn = result.further
    assert dict(listed.shape) == LISTED and dict(drawn.shape) not in (LISTED, dict(result.shape))
    for each in result.further:
        assert each.timing and len(each.timing.samples_ms) >= 2 and each.measurement and each.speedup
        assert each.measurement.audits > 0


def test_a_timed_shape_was_checked_before(results: dict[str, Result]) -> None:
    shapes = [dict(check.shape) for check in results["right"].checks]
    for each in results["right"].further:
        assert shapes.count(dict(each.shape)) == CHECKED


def test_a_kernel_that_is_wrong_at_a_further_shape_only_fails_there(
    run: tuple[Finished, Harness], results: dict[str, Result]
) -> None:
    wrong = results["wrong_there"]
    assert wrong.status is Status.WRONG_VALUES and not any(wrong.timings)
    assert f"{TEXT}:normal" in wrong.reason
    words = shlex.split(wrong.reproduce)
    again = run[1].run(*words[words.index("--problem") : words.index("--results")])
    assert again.code == 1 and f"wrong_there: WRONG_VALUES  {TEXT}:normal" in again.stdout


@pytest.mark.parametrize(
    ("kernel", "status", "said"),
    [
        ("wrong_when_timed", Status.WRONG_VALUES, "The output of a timed call is wrong"),
        ("crashes_when_timed", Status.CRASHED, "A timed call failed"),
    ],
)
def test_a_kernel_that_fails_in_a_timed_call_at_a_further_shape_has_failed(
    results: dict[str, Result], kernel: str, status: Status, said: str
) -> None:
    result = results[kernel]
    assert result.status is status and not any(result.timings)
    assert result.verdict.startswith(f"At the further shape {TEXT}: {said}")


def test_a_kernel_that_refuses_a_further_shape_is_timed_at_the_others(results: dict[str, Result]) -> None:
    result = results["refuses"]
    assert result.passed and TEXT not in result.restricted_to
    refused, timed = result.further
    assert refused.timing is None and refused.untimed == "The kernel refuses this shape."
    assert timed.timing and not result.is_timed_everywhere


def test_the_files_of_the_leaderboard_have_each_kernel_and_each_shape(run: tuple[Finished, Harness]) -> None:
    folder = run[1].leaderboard("product").parent
    (shapes,) = folder.glob("leaderboard-3-shapes-*-shapes.csv")
    with shapes.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * (len(KERNELS) + 1)
    timed = {(row["kernel"], row["shape"]) for row in rows if row["time_ms"]}
    assert ("right", TEXT) in timed and ("refuses", TEXT) not in timed
    assert not (folder / "leaderboard.csv").exists()


# ------------------------------------------------------------------------------------------ other problems


def test_a_foreign_file_is_timed_at_drawn_shapes(tmp_path: Path, harness: Harness) -> None:
    folder = written(tmp_path / "files", problem=FOREIGN, kernel=FOREIGN.replace("class Model(", "class ModelNew("))
    words = ["--problem", folder / "problem.py", "--kernel", folder / "kernel.py", "--device", "cpu"]
    result = from_line(harness.run(*words, "--time-shapes", "2", "--budget", "0.3", "--json").stdout.splitlines()[0])
    assert result.passed and len(result.further) == 2 and result.is_timed_everywhere
    assert all(each.shape.keys() == {"batch_size", "in_features", "out_features"} for each in result.further)


def test_the_file_s_shapes_have_the_usual_leaderboard_and_a_zero_another(tmp_path: Path, harness: Harness) -> None:
    own = PROBLEM_FILE.read_text() + "\nTIME_SHAPES = [dict(M=16), dict(M=48, K=64)]\n"
    folder = written(tmp_path / "files", product=own, right=RIGHT, other=RIGHT.replace("A.T", "A.t()"))
    words: list[str | Path] = ["--problem", folder / "product.py", "--device", "cpu", "--budget", "0.5"]
    words += ["--kernel", folder / "right.py", "--kernel", folder / "other.py", "--baseline", "right"]
    finished = harness.run(*words)
    assert finished.code == 0, finished.stderr
    assert "product, M=32,K=256,N=48 and 2 further shapes" in finished.stdout
    assert "Timed at M=32,K=256,N=48; M=16,K=256,N=48; M=48,K=64,N=48." in finished.stdout
    board = harness.leaderboard("product")
    assert finished.stdout.splitlines()[-1].endswith("leaderboard.csv") and board.exists()
    before = board.read_text()
    stored = {line["kernel"]: from_line(json.dumps(line)) for line in harness.journal("product")}
    assert all(each.speedup and each.speedup.estimate == 1 for each in stored["right"].further)

    alone = harness.run(*words, "--time-shapes", "0")
    assert alone.code == 0 and "further" not in alone.stdout and "Timed at" not in alone.stdout
    assert board.read_text() == before and (board.parent / "leaderboard-M32-K256-N48.csv").exists()

    page = harness.run("report", folder / "product.py").stdout
    assert "report.html" in page and "report-M32-K256-N48.html" in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--time-shapes", "Q=64"], "has no constant Q"),
        (["--shape", "M=8", "--shape", "M=16", "--time-shapes", "1"], "--time-shapes takes one --shape"),
        (["--time-shapes", "many"], "'many' is not of the form"),
    ],
)
def test_wrong_shapes_are_told(typed: Callable[..., Finished], tmp_path: Path, words: list[str], said: str) -> None:
    finished = typed("--problem", PROBLEM_FILE, "--kernel", PROBLEM_FILE, *words, "--results", tmp_path)
    assert finished.code == 2 and said in finished.stderr


# ------------------------------------------------------------------------------------------------- Python


def test_an_evaluator_times_each_kernel_at_each_shape() -> None:
    with kernel_harness.Evaluator(PROBLEM_FILE, device="cpu", budget_s=0.2, time_shapes=[LISTED]) as evaluator:
        found = [evaluator.evaluate(RIGHT), evaluator.evaluate(KERNEL.format(there="C += 1"))]
        assert evaluator.reward(RIGHT) == 1.0
    first, second = found
    assert first.passed and first.is_timed_everywhere and first.speedup is None
    assert [dict(each.shape) for each in first.further] == [LISTED]
    assert second.status is Status.WRONG_VALUES and second.further_shapes == first.further_shapes


def test_a_pool_times_at_drawn_shapes() -> None:
    with kernel_harness.EvaluatorPool(device="cpu", jobs=1, budget_s=0.2, time_shapes=1) as pool:
        result = pool.evaluate(PROBLEM_FILE, RIGHT)
    assert result.passed and len(result.further) == 1 and result.is_timed_everywhere


def test_an_agent_is_told_the_speedup_or_the_reason_at_each_shape() -> None:
    own = PROBLEM_FILE.read_text() + "\nTIME_SHAPES = [dict(M=16), dict(M=64, K=48, N=40)]\n"
    with Tools("cpu", 0.2) as tools:
        said = tools.judge(own, KERNEL.format(there=KERNELS["refuses"]))
    assert "PASSED" in said and f"At {TEXT}: The kernel refuses this shape." in said


def test_what_was_measured_before_an_interruption_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(further, "time_cohorts", interrupted)
    kept: list[Result] = []
    problem = lookup.problem(str(PROBLEM_FILE), Path.cwd()).sized({}, emulated=True)
    settings = Settings.of(budget_s=0.2, time_shapes=LISTED)
    with Session(problem, Emulated(), settings, SilentObserver()) as session, pytest.raises(KeyboardInterrupt):
        session.judge([lookup.source(RIGHT)], kept.append)
    last = {result.kernel: result for result in kept}["candidate"]
    assert last.timing and last.further[0].timing is None
    assert last.further[0].untimed == "The kernel was not timed here: the run ended before."


# -------------------------------------------------------------------------------------------------- own kernels


def test_a_kernel_of_a_library_has_no_rank_where_own_kernels_are_required(tmp_path: Path, harness: Harness) -> None:
    folder = written(tmp_path / "files", library=RIGHT)
    words: list[str | Path] = ["matmul_tt", "tiled", "--kernel", folder / "library.py", "--device", "cpu", "--json"]
    words += ["--budget", "0.5", "--time-shapes", "M=64,K=48,N=40", "--require-own-kernels", "90%"]
    finished = harness.run(*words)
    found = {result.kernel: result for result in map(from_line, finished.stdout.splitlines())}
    assert finished.code == 0 and all(result.passed for result in found.values())
    assert found["tiled"].own_share == 1.0 and not found["tiled"].is_excluded
    assert found["library"].own_share == 0.0 and found["library"].is_excluded
    assert "its own kernels do 0.0% of the work, and 90% are required" in found["library"].reason


# -------------------------------------------------------------------------------------------------- suites


def test_a_suite_times_at_further_shapes_and_keeps_to_them(tmp_path: Path, harness: Harness) -> None:
    written(tmp_path / "problems", product=PROBLEM_FILE.read_text())
    (tmp_path / "kernels").mkdir()
    written(tmp_path / "kernels" / "product", right=RIGHT)
    words = ["suite", str(tmp_path / "problems"), "--kernels", str(tmp_path / "kernels"), "--device", "cpu"]
    finished = harness.run(*words, "--jobs", "1", "--budget", "0.2", "--time-shapes", "1")
    assert finished.code == 0 and "timed at further shapes (1)" in finished.stdout, finished.stderr
    store = SuiteStore(harness.results / "suites" / "kernels")
    (result, *_) = store.details("product", "cpu-emulated").read()
    assert len(result.further) == 1 and result.is_timed_everywhere
    other = harness.run(*words, "--jobs", "1", "--budget", "0.2", "--time-shapes", "2", "--resume")
    assert other.code == 2 and "time_shapes was ['1'] and is ['2']" in other.stderr
