"""What a user types that names nothing or cannot be used: a usage error, with a suggestion where there is one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command import CANDIDATES, ROOT, Finished

BAD = CANDIDATES / "bad"
GOOD = BAD / "good.py"


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (["--problem", "matmul_t"], "did you mean 'matmul_tt'?"),
        (["--problem", "matmul_tt", "--kernel", "tild"], "did you mean 'tiled'?"),
        (["--problem", "matmul_tt", "--kernal", "tiled"], "run does not take '--kernal'; did you mean '--kernel'?"),
        (["--problem", "matmul_tt", "tild", "naive"], "did you mean 'tiled'?"),
        (["matmul_tt", "tild"], "did you mean 'tiled'?"),
        (["--problem", "matmul_tt", "--precision", "fp16"], "did you mean 'float16'?"),
        (["--problem", "matmul_tt", "--precision", "bflot16"], "did you mean 'bfloat16'?"),
        (["--problem", "matmul_tt", "--shape", "M=3", "--shape", "M=4", "--watch"], "--watch takes one shape"),
        (
            ["--problem", "matmul_tt", "--shape", "M=2..8:x2", "--case", "own"],
            "--case takes one shape, and --shape names 3",
        ),
        (["--problem", "matmul_tt", "--shape", "M=8..2:x2"], "'8..2:x2' is an empty or endless range"),
        (["--problem", "matmul_tt", "--shape", "M=1..200:+1"], "names 200 shapes; name at most 100"),
        (["--problem", "matmul_tt", "--shape", "M=2..8"], "a range is written M=256..8192:x2"),
        (["--problem", "matmul_tt", "--case", "M=48,K=256,N=64:norml"], "did you mean 'M=48,K=256,N=64:normal'?"),
        (["--problem", "matmul_tt", "--device", "cdua"], "there are auto, cpu, cuda and cuda:N"),
        (["--problem", "matmul_tt", "--device", "cuda:99"], "--device cpu emulates one"),
        (["--problem", "matmul_tt", "--shape", "MM=3"], "did you mean M?"),
        (["--problem", "matmul_tt", "--shape", "M:3"], "M=64,K=128,N=96"),
        (["--problem", "matmul_tt", "--shape", "M=-3"], "get_inputs() at M=-3"),
        (["--problem", "matmul_tt", "--shape", "M=0"], "at M=0,K=256,N=64, an input or an output has no elements"),
        (["--problem", "matmul_tt", "--precision", "fp8"], "bfloat16"),
        (["--problem", "matmul_tt", "--timeout", "0"], "positive"),
        (["--problem", "matmul_tt", "--kernel", str(BAD)], "no kernel"),
    ],
)
def test_what_does_not_exist_is_a_usage_error_with_a_suggestion(
    arguments: list[str], suggestion: str, typed: Callable[..., Finished], tmp_path: Path
) -> None:
    finished = typed("run", *arguments, "--results", tmp_path / "results")

    assert finished.code == 2, finished.stderr
    assert suggestion in finished.stderr
    assert "preparing" not in finished.stderr


@pytest.mark.parametrize(
    ("shapes", "complaint"),
    [(["M=3", "--shape", "M=4"], "--shape is given twice"), (["M=2..8:x2"], "names 3 shapes, and only the verb `run`")],
)
def test_other_verbs_take_one_shape(shapes: list[str], complaint: str, typed: Callable[..., Finished]) -> None:
    told = typed("sanitize", "matmul_tt", "naive", "--shape", *shapes)
    assert told.code == 2 and complaint in told.stderr


@pytest.mark.parametrize("verb", ["sanitize", "profile"])
def test_inputs_that_cannot_be_drawn_are_reported_before_anything_is_built(
    verb: str, typed: Callable[..., Finished], tmp_path: Path
) -> None:
    finished = typed(verb, "matmul_tt", "naive", "--device", "cpu", "--shape", "M=-3")

    assert finished.code == 2 and "get_inputs() at M=-3" in finished.stderr and "preparing" not in finished.stderr


def test_a_misspelt_verb_is_suggested(typed: Callable[..., Finished]) -> None:
    finished = typed("reprot")

    assert finished.code == 2, finished.stderr
    assert "no verb 'reprot', did you mean 'report'?" in finished.stderr


def test_a_misspelt_verb_with_arguments_is_suggested(typed: Callable[..., Finished]) -> None:
    finished = typed("profle", "matmul_tt", "tiled", "--lines")

    assert finished.code == 2 and "no verb 'profle', did you mean 'profile'?" in finished.stderr


def test_a_usage_error_leaves_no_results_behind(typed: Callable[..., Finished], tmp_path: Path) -> None:
    finished = typed("--problem", "matmul_tt", "--kernel", "tild", "--results", tmp_path / "results")

    assert finished.code == 2, finished.stderr
    assert "Traceback" not in finished.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("def broken(:\n", "broken_problem.py:1:"),
        ("import torch\n", "defines no Model"),
        ("TOLERENCE = {}\n", "broken_problem.py:1: TOLERENCE means nothing to the harness; did you mean TOLERANCE?"),
        ("class Model:\n    pass\n\ndef get_input():\n    pass\n", "py:4: get_input means nothing to the harness;"),
        ("class Model:\n    pass\n\ndef get_inputs():\n    return [1 / 0]\n", "ZeroDivisionError"),
    ],
)
def test_a_problem_that_cannot_be_used_is_a_usage_error(
    source: str, complaint: str, typed: Callable[..., Finished], tmp_path: Path
) -> None:
    path = tmp_path / "broken_problem.py"
    path.write_text(source)
    finished = typed("--problem", path, "--kernel", GOOD, "--device", "cpu", "--results", tmp_path / "results")

    assert finished.code == 2, finished.stderr
    assert complaint in finished.stderr


def test_a_kernel_that_has_not_changed_is_no_error(typed: Callable[..., Finished]) -> None:
    finished = typed("compare", "--problem", "matmul_tt", "naive", "naive")

    assert finished.code == 0 and "have the same source: nothing has changed" in finished.stdout, finished.stderr


def test_a_problem_without_an_option_is_accepted(typed: Callable[..., Finished]) -> None:
    listed = typed("list", "matmul_tt")
    assert listed.code == 0 and "tiled" in listed.stdout, listed.stderr
    compared = typed("compare", "matmul_tt", "naive", "naive")
    assert compared.code == 0 and "nothing has changed" in compared.stdout, compared.stderr
    third = typed("compare", "one", "two", "three")
    assert third.code == 2 and "'three' is a third one" in third.stderr


def test_the_package_runs_as_a_module() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "kernel_harness", "--version"], capture_output=True, text=True, cwd=ROOT
    )
    assert told.returncode == 0 and told.stdout.startswith("kernel harness "), told.stderr
