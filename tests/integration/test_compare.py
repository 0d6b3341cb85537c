"""Comparisons: the verdict on each kernel, refusals, and versions of a kernel measured in the same rounds."""

from __future__ import annotations

import math
import random
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command import Finished
from support.pages import as_rounds, keep
from support.product import PROBLEM_FILE

from kernel_harness import cli
from kernel_harness.core.errors import UserError
from kernel_harness.core.status import Status
from kernel_harness.results import comparison
from kernel_harness.results.comparison import Change
from kernel_harness.results.journal import Journal
from kernel_harness.results.record import Kind, Result, RunSettings
from kernel_harness.timing import intervals, statistics
from kernel_harness.timing.intervals import Interval

SHAPE = {"M": 4, "K": 8}
GPU = {"device": "NVIDIA H200"}
BASELINE_MS = 10.0


def record(kernel: str, speedup: float | None = None, run: str = "a", spread: float = 0.001, **more: Any) -> Result:
    """Timed against a baseline of 10 ms if it has a speedup."""
    measured = None
    if speedup is not None:
        interval = Interval(speedup / (1 + spread), speedup, speedup * (1 + spread))
        time = interval.scaled(1)
        time = Interval(BASELINE_MS / interval.high, BASELINE_MS / speedup, BASELINE_MS / interval.low)  # type: ignore
        measured = statistics.Timing((time.estimate,), (), time, interval)
    given = {"verdict": "", "shape": SHAPE, "source_sha256": "ab", "environment": GPU, "status": Status.PASSED}
    return Result(kernel, timing=measured, run=run, measured_at="2025-01-01T00:00:00+00:00", **{**given, **more})


def side(name: str, *records: Result, problem: str | None = None) -> comparison.Side:
    return comparison.side(name, records, problem)


def changes(a: Result, b: Result) -> Change:
    (row,) = comparison.compare(side("A", a), side("B", b)).rows
    return row.change


# ------------------------------------------------------------------------------------------- statistics


speedups = st.floats(0.01, 100)
spreads = st.floats(0, 0.5)


@given(speedups, speedups, spreads, spreads)
def test_the_ratio_of_two_runs_is_the_ratio_of_their_speedups_and_lies_within_its_bounds(new, old, spread, other):
    a, b = Interval(old / (1 + other), old, old * (1 + other)), Interval(new / (1 + spread), new, new * (1 + spread))
    ratio = intervals.through_baseline(b, a)
    assert ratio.low is not None and ratio.high is not None
    assert ratio.estimate == pytest.approx(new / old)
    assert ratio.low <= ratio.estimate * (1 + 1e-12) and ratio.estimate <= ratio.high * (1 + 1e-12)


@given(speedups, spreads, spreads)
def test_errors_of_two_runs_add_up_in_squares(old, spread, other):
    a, b = Interval(old / (1 + other), old, old * (1 + other)), Interval(old / (1 + spread), old, old * (1 + spread))
    width = intervals.through_baseline(b, a).half_width
    assert width == pytest.approx(math.hypot(math.log1p(spread), math.log1p(other)), abs=1e-9)


def test_a_run_without_bounds_bounds_no_ratio():
    ratio = intervals.through_baseline(Interval(None, 2.0, None), Interval(0.9, 1.0, 1.1))
    assert ratio == Interval(None, 2.0, None)


def test_the_interval_of_two_runs_holds_as_often_as_it_says():
    """Repeats 400 times: two runs of noisy rounds, with a change of the machine's speed between them."""
    rng, truth, covered = random.Random(1), 1.1, 0

    def run(speed: float) -> Interval:
        drift = rng.uniform(0.5, 2)
        noise = {arm: [drift * rng.lognormvariate(0, 0.05) for _ in range(32)] for arm in ("torch", "k")}
        noise["k"] = [ms / speed for ms in noise["k"]]
        return statistics.ratio_interval(as_rounds(noise), "k", "torch")

    for _ in range(400):
        ratio = intervals.through_baseline(run(truth), run(1.0))
        covered += ratio.low <= truth <= ratio.high  # type: ignore[operator]
    assert covered >= 380


# -------------------------------------------------------------------------------------------- verdicts


def test_in_the_same_rounds_one_side_may_need_fewer_rounds_than_the_other():
    a, b = record("k", 1.0), record("k", 1.2, run="b")
    assert a.timing and b.timing
    a = replace(a, timing=replace(a.timing, samples_ms=(10.0,) * 48))
    b = replace(b, timing=replace(b.timing, samples_ms=(8.3,) * 32))
    (row,) = comparison.compare(comparison.side("A", [a]), comparison.side("B", [b]), interleaved=True).rows

    assert row.change is Change.FASTER and row.ratio == b.timing.speedup


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (record("k", 1.0), record("k", 1.1, run="b"), Change.FASTER),
        (record("k", 1.0), record("k", 0.9, run="b"), Change.SLOWER),
        (record("k", 1.0), record("k", 1.001, run="b"), Change.SAME),
        (record("k", 1.0), record("k", 1.1, run="b", spread=0.2), Change.UNDECIDED),
        (record("k", 1.0), record("k", run="b"), Change.UNDECIDED),
        (record("k", 1.0), record("k", run="b", status=Status.WRONG_VALUES), Change.BROKEN),
        (record("k", status=Status.CRASHED), record("k", 1.0, run="b"), Change.FIXED),
        (record("k", status=Status.CRASHED), record("k", run="b", status=Status.TIMEOUT), Change.FAILED),
    ],
)
def test_the_change_of_a_kernel_follows_from_both_results(before, after, change):
    assert changes(before, after) is change


def test_a_time_without_a_baseline_decides_nothing():
    timed = record("k", 1.0, run="b")
    alone = replace(timed, timing=replace(timed.timing, speedup=None))
    assert changes(record("k", 1.0), alone) is Change.UNDECIDED


def test_runs_against_different_baselines_are_undecided():
    eager, compiled = (RunSettings(baseline=name) for name in ("torch", "torch.compile"))
    a, b = side("A", record("k", 1.0, settings=eager)), side("B", record("k", 2.0, run="b", settings=compiled))
    (row,) = comparison.compare(a, b).rows
    assert row.change is Change.UNDECIDED and row.note == "timed against torch in A and torch.compile in B"


def test_a_kernel_that_is_the_baseline_is_undecided():
    settings = RunSettings(baseline="k")
    a, b = (side(n, record("k", 1.0, run=n, settings=settings)) for n in "AB")
    assert [row.change for row in comparison.compare(a, b).rows] == [Change.UNDECIDED]


def test_kernels_of_one_side_only_are_named_and_not_compared():
    a = side("A", record("both", 1.0), record("old", 1.0), record("torch", 1.0, kind=Kind.BASELINE))
    b = side("B", record("both", 1.0, run="b"), record("new", 1.0, run="b"))
    outcome = comparison.compare(a, b)
    assert [row.kernel for row in outcome.rows] == ["both"]
    assert (outcome.only_a, outcome.only_b) == (("old", "torch"), ("new",))


def test_a_kernel_of_both_sides_at_different_shapes_is_named_with_its_shape():
    a = side("A", record("both", 1.0), record("k", 1.0, shape={"M": 5}))
    b = side("B", record("both", 1.0, run="b"), record("k", 1.0, run="b", shape={"M": 6}))
    outcome = comparison.compare(a, b)
    assert (outcome.only_a, outcome.only_b) == (("k at M=5",), ("k at M=6",))
    assert "Only in A: k at M=5." in comparison.render(outcome)


def test_a_kernel_is_compared_at_each_shape_that_both_have():
    small, large = {"M": 1}, {"M": 2}
    a = side("A", record("k", 1.0, shape=small), record("k", 1.0, shape=large))
    b = side("B", record("k", 2.0, run="b", shape=small), record("k", 0.5, run="b", shape=large))
    outcome = comparison.compare(a, b)
    assert [(row.shape, row.change) for row in outcome.rows] == [
        ((("M", 1),), Change.FASTER),
        ((("M", 2),), Change.SLOWER),
    ]
    assert "k at M=2" in comparison.render(outcome)


def test_a_regression_counts_if_it_is_certain_and_larger_than_allowed():
    a = side("A", *(record(k, 1.0) for k in ("slower", "noisy", "faster", "broken")))
    b = side(
        "B", record("slower", 0.95, run="b"), record("noisy", 0.5, run="b", spread=2), record("faster", 2.0, run="b"),
        record("broken", run="b", status=Status.WRONG_VALUES),
    )  # fmt: skip
    outcome = comparison.compare(a, b)
    assert [row.kernel for row in outcome.regressions(0)] == ["broken", "slower"]
    assert [row.kernel for row in outcome.regressions(5)] == ["broken", "slower"]
    assert [row.kernel for row in outcome.regressions(5.5)] == ["broken"]


@pytest.mark.parametrize("before", [Status.PASSED, Status.WRONG_VALUES])
def test_why_a_kernel_fails_on_side_b_is_said(before):
    failed = record("k", run="b", status=Status.WRONG_VALUES, verdict="M=4: 3 elements wrong.\nindex  got")
    text = comparison.render(comparison.compare(side("A", record("k", status=before)), side("B", failed)))
    assert "M=4: 3 elements wrong." in text.splitlines()[-1] and "index  got" not in text


# ------------------------------------------------------------------------------------------- refusals


def test_different_devices_are_compared_only_with_force():
    a, b = side("A", record("k", 1.0)), side("B", record("k", 2.0, run="b", environment={"device": "NVIDIA H100"}))
    with pytest.raises(UserError, match=r"NVIDIA H200 in A and on NVIDIA H100 in B; --force"):
        comparison.compare(a, b)
    assert comparison.compare(a, b, force=True).rows[0].change is Change.FASTER


def test_an_emulation_on_another_processor_is_another_device():
    one, other = ({"device": "CUDA emulated on the CPU", "processor": name} for name in ("Zen", "Xeon"))
    a, b = (side(n, record("k", 1.0, run=n, environment=e, emulated=True)) for n, e in (("A", one), ("B", other)))
    with pytest.raises(UserError, match=r"Zen.*Xeon"):
        comparison.compare(a, b)


def test_different_shapes_are_compared_only_with_force():
    a, b = side("A", record("k", 1.0)), side("B", record("k", 2.0, run="b", shape={"M": 5, "K": 8}))
    with pytest.raises(UserError, match=r"M=4,K=8, B has M=5,K=8; --force"):
        comparison.compare(a, b)
    assert comparison.compare(a, b, force=True).rows[0].change is Change.FASTER


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (side("A", record("k", 1.0), problem="p"), side("B", record("k", 1.0, run="b"), problem="q"), "problems, p"),
        (side("A", record("k", 1.0)), side("B", record("k", 1.0)), "the same measurements"),
        (side("A", record("k", 1.0)), side("B", record("l", 1.0, run="b")), "no kernel in common"),
    ],
)
def test_sides_with_nothing_in_common_are_refused_even_with_force(a, b, message):
    with pytest.raises(UserError, match=message):
        comparison.compare(a, b, force=True)


# ----------------------------------------------------------------------------------------- the command


class Stored:
    """The command, in this process, on two runs of two kernels: one became faster, the other slower by 10%."""

    def __init__(self, results: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.results, self.capsys = results, capsys
        folder = results / "p" / "nvidia-h200"
        keep(folder, record("up", 1.0, "20260101-before"), record("down", 1.0, "20260101-before"))
        keep(folder, record("up", 2.0, "20260102-after"), record("down", 1 / 1.1, "20260102-after"))

    def run(self, *arguments: str | Path) -> Finished:
        code = cli.main([*map(str, arguments), "--results", str(self.results)])
        return Finished(code, *self.capsys.readouterr())


@pytest.fixture
def stored(tmp_path, capsys):
    return Stored(tmp_path / "results", capsys)


@pytest.mark.parametrize("words", [("previous", "latest"), ("20260101", "20260102"), ("20260101-before",)])
def test_runs_are_named_by_id_or_by_age(stored, words):
    finished = stored.run("compare", *words)
    assert finished.code == 3, finished.stderr
    verdicts = {line.split()[0]: line.split()[3] for line in finished.stdout.splitlines() if "x  " in line}
    assert verdicts == {"up": "faster", "down": "slower"}
    assert "slower or broken: down" in finished.stderr


def test_runs_named_by_age_are_those_on_the_device_that_was_used_last(stored):
    elsewhere = stored.results / "p" / "cpu-emulated"
    keep(elsewhere, record("up", 1.0, "20251230-older"), record("up", 1.0, "20251231-old"))
    assert "A: run 20260101-before" in stored.run("compare", "previous", "latest").stdout
    keep(elsewhere, record("up", 1.0, "20260103-newest"))
    assert "A: run 20251231-old" in stored.run("compare", "previous", "latest").stdout


@pytest.mark.parametrize(
    "more", [{"settings": RunSettings(kernels=2)}, {"interim": True}], ids=["a kernel is missing", "not timed"]
)
def test_interrupted_runs_do_not_count_for_the_age(stored, more):
    keep(stored.results / "p" / "nvidia-h200", record("up", None, "20260103-interrupted", **more))
    said = stored.run("compare", "previous", "latest").stdout
    assert "A: run 20260101-before" in said
    assert "B: run 20260102-after (later runs left out because they were interrupted: 20260103-interrupted)" in said
    assert "B: run 20260103-interrupted (interrupted)" in stored.run("compare", "20260102", "20260103").stdout


def test_runs_of_several_problems_named_by_age_are_refused(stored):
    keep(stored.results / "q" / "cpu-emulated", record("up", 1.0, "20260104-other"))
    finished = stored.run("compare", "20260101", "latest")
    assert finished.code == 2 and "name its problem with --problem" in finished.stderr


@pytest.mark.parametrize(("limit", "code"), [("3%", 3), ("11%", 0), ("9.5", 3)])
def test_fail_over_says_how_much_slower_is_too_much(stored, limit, code):
    assert stored.run("compare", "previous", "latest", "--fail-over", limit).code == code


def test_an_improvement_is_no_regression(stored):
    assert stored.run("compare", "previous", "latest", "--kernel", "u*").code == 0


def test_files_and_folders_are_compared(stored, tmp_path):
    before = keep(tmp_path, record("up", 1.0), name="before.jsonl") / "before.jsonl"
    finished = stored.run("compare", before, stored.results / "p" / "nvidia-h200")
    assert finished.code == 0 and "faster" in finished.stdout and "Only in B: down." in finished.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("2026", "latest"), "name the run in full"),
        (("nonsense", "other"), "add --problem"),
        (("latest", "nonsense"), "name two runs, or two versions"),
        (("leaderboard.csv", "latest"), "name the runs.jsonl"),
        (("missing.jsonl", "latest"), "there is no missing.jsonl"),
        (("latest", "latest"), "the same measurements"),
        (("previous", "latest", "--kernel", "x"), "no results of x"),
        (("nonsense", "other", "--problem", "matmul_tt"), "select one kernel with --kernel"),
        (("nonsense", "now", "--problem", "matmul_tt", "--kernel", "tiled"), "no such run, file or git revision"),
    ],
)
def test_an_argument_that_names_nothing_gets_one_sentence(stored, words, message):
    finished = stored.run("compare", *words)
    assert finished.code == 2 and message in finished.stderr, finished.stderr
    assert finished.stderr.count("\n") == 1 and not finished.stdout


# The difference is larger than any effect of other load on the machine.
SLOW, FAST = 0.1, 0.0
KERNEL = '''"""Takes {seconds} seconds longer than it needs."""
import time
import torch

class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        time.sleep({seconds})
        return torch.matmul(A.T, B.T){wrong}
'''


@pytest.fixture
def versions(tmp_path: Path) -> Path:
    """A kernel in its own git repository: the first commit is slow, the second fast, the file now is wrong."""
    path = tmp_path / "repository" / "mine.py"
    path.parent.mkdir()
    git = ["git", "-C", str(path.parent), "-c", "user.name=x", "-c", "user.email=x@x"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    for seconds in (SLOW, FAST):
        path.write_text(KERNEL.format(seconds=seconds, wrong=""))
        subprocess.run([*git, "add", "mine.py"], check=True)
        subprocess.run([*git, "commit", "--quiet", "-m", str(seconds)], check=True)
    path.write_text(KERNEL.format(seconds=FAST, wrong=" + 1"))
    return path


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.slow
def test_two_revisions_are_measured_in_the_same_rounds(harness, versions):
    asked = ["compare", "--problem", PROBLEM_FILE, "--kernel", versions, "--rounds", "16"]
    finished = harness.run(*asked, "HEAD~1", "HEAD")
    assert finished.code == 0 and "faster" in finished.stdout, finished.stdout + finished.stderr
    assert "A: mine@HEAD~1" in finished.stdout and "do not predict a GPU" in finished.stdout
    assert harness.run(*asked, "HEAD", "HEAD~1").code == 3
    assert not harness.results.exists()  # a comparison is no run of the problem


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.slow
def test_a_revision_is_compared_with_the_file_as_it_is_now(typed, versions):
    finished = typed("compare", "--problem", PROBLEM_FILE, "--kernel", versions, "--rounds", "8", "HEAD")
    assert finished.code == 3 and "PASSED -> WRONG_VALUES" in finished.stdout, finished.stdout + finished.stderr
    assert "mine@now: WRONG_VALUES" in finished.stderr


@pytest.mark.slow
def test_two_files_are_measured_in_the_same_rounds(typed, tmp_path):
    for name, seconds in (("fast", FAST), ("slow", SLOW)):
        (tmp_path / f"{name}.py").write_text(KERNEL.format(seconds=seconds, wrong=""))
    finished = typed("compare", "--problem", PROBLEM_FILE, "--rounds", "16", tmp_path / "slow.py", tmp_path / "fast.py")
    assert finished.code == 0 and "faster" in finished.stdout, finished.stdout + finished.stderr
    assert "slow -> fast" in finished.stdout


@pytest.mark.slow
def test_every_result_has_the_name_of_its_run(typed, tmp_path):
    """The run prints its name, and the next run has another."""
    (tmp_path / "mine.py").write_text(KERNEL.format(seconds=FAST, wrong=""))
    results = tmp_path / "results"
    asked = ["--problem", PROBLEM_FILE, "--kernel", tmp_path / "mine.py", "--rounds", "8", "--results", results]
    printed = [typed(*asked).stdout for _ in range(2)]
    runs = list(dict.fromkeys(r.run for r in Journal(results / "product" / "cpu-emulated").read()))
    assert len(runs) == 2
    assert all(f"run {name}" in text for name, text in zip(runs, printed, strict=True))
