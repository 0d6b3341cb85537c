"""The exit code of a run: a kernel for which this machine lacks something is no failure, unless it was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.suites import CANDIDATE, PROBLEM, write

from kernel_harness.cli import run as verb
from kernel_harness.core.status import Status
from kernel_harness.problem import candidate, lookup
from kernel_harness.results.record import Kind, Result

LACKING = "import cutlass\n"
QUICK = ("--problem", "p", "--device", "cpu", "--rounds", "1", "--quick")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a problem, a right kernel, and one for which this machine lacks a package."""
    right = CANDIDATE.format(number=0, factor=2)
    write(
        tmp_path,
        {"problems/p.py": PROBLEM.format(factor=2), "kernels/p/right.py": right, "kernels/p/lacking.py": LACKING},
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code"),
    [([], 0), (["--kernel", "*"], 0), (["--kernel", "lacking"], 1), (["--kernel", "right", "--kernel", "lack*"], 0)],
    ids=["all kernels", "a pattern", "a name", "another name"],
)
def test_a_kernel_that_this_machine_cannot_run_is_a_failure_only_if_it_was_asked_for(folder, typed, words, code):
    ended = typed(*QUICK, *words)
    assert "UNSUPPORTED" in ended.stdout and ended.code == code, ended.stderr


@pytest.mark.slow
def test_a_suite_with_such_a_kernel_has_no_failure(folder, typed):
    ended = typed("suite", "problems", "--kernels", "kernels", "--device", "cpu", "--jobs", "1", "--quick")
    assert "UNSUPPORTED" in ended.stdout and ended.code == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("word", "asked"),
    [("lacking", True), ("lacking.py", True), ("kernels/p/lacking.py", True), ("./kernels/p/lacking.py", True),
     ("*", False), ("lack*", False), ("lackin[g]", False), ("kernels/p/*.py", False), ("right", False)],
)  # fmt: skip
def test_a_name_or_a_path_asks_for_a_kernel_and_a_pattern_does_not(folder, word, asked):
    found = [candidate.read(path) for path in sorted(Path("kernels/p").glob("*.py"))]
    assert ("lacking" in lookup.asked_for([word], found)) is asked


@pytest.mark.parametrize(
    ("status", "kind", "asked", "fails"),
    [
        (Status.PASSED, Kind.CANDIDATE, True, False),
        (Status.UNSUPPORTED, Kind.CANDIDATE, False, False),
        (Status.UNSUPPORTED, Kind.CANDIDATE, True, True),
        (Status.RUNTIME_ERROR, Kind.CANDIDATE, False, True),
        (Status.RUNTIME_ERROR, Kind.BASELINE, False, False),
    ],
)
def test_which_results_make_a_run_fail(status: Status, kind: Kind, asked: bool, fails: bool) -> None:
    result = Result("k", status, "", {}, "", kind=kind)
    assert verb.is_failure(result, {"k"} if asked else set()) is fails
