"""The command that a failure prints: it works as it is printed, whatever the problem and the paths are."""

from __future__ import annotations

import itertools
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import ROOT

from kernel_harness.checking.cases import plan
from kernel_harness.core.precision import Precision
from kernel_harness.device.cpu import Emulated, Strict
from kernel_harness.problem import lookup
from kernel_harness.problem import problem as problems
from kernel_harness.problem.candidate import Candidate
from kernel_harness.session import reproduce
from kernel_harness.session.settings import Settings
from kernel_harness.workers.process import Limits

WITHOUT_CONSTANTS = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2

def get_inputs():
    return [torch.rand(8, 8)]

def get_init_inputs():
    return []
"""
WRONG = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x * 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, whose name and files need quoting."""
    path = tmp_path / "a folder"
    path.mkdir()
    (path / "my problem.py").write_text(WITHOUT_CONSTANTS)
    (path / "it's mine.py").write_text(WRONG)
    (path / "-mine.py").write_text(WRONG)
    monkeypatch.chdir(path)
    return path


def printed(kernel: str, settings: Settings, emulated: type[Emulated] = Emulated) -> list[str]:
    """The words of the command for a failure in the first case."""
    problem = problems.load("my problem", Path("my problem.py"))
    candidate = Candidate("mine", Path(kernel), WRONG)
    return shlex.split(reproduce.command(problem, emulated(), settings, candidate, plan(problem, 1)[0]))


@pytest.mark.slow
def test_it_works_in_a_shell_for_a_problem_without_constants(folder: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = shlex.join(printed("it's mine.py", Settings(seed=1, quick=True)))
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(command, shell=True, cwd=elsewhere, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "WRONG_VALUES" in done.stdout
    (again,) = [line for line in done.stdout.splitlines() if line.startswith("  reproduce: ")]
    assert again == f"  reproduce: {command}"


def test_it_names_no_shape_where_there_are_no_constants(folder: Path) -> None:
    assert "--shape" not in printed("it's mine.py", Settings())


def test_a_path_is_not_taken_for_an_option(folder: Path) -> None:
    words = printed("-mine.py", Settings())
    assert words[words.index("--kernel") + 1] == str(folder / "-mine.py")


def test_it_works_in_any_folder(folder: Path) -> None:
    words = printed("it's mine.py", Settings(results=Path("my results")))
    paths = [word for word in words if word.endswith((".py", " results"))]
    assert [Path(word).name for word in paths] == ["harness.py", "my problem.py", "it's mine.py", "my results"]
    assert all(Path(word).is_absolute() for word in paths)


def test_it_names_a_shipped_problem_by_its_name(folder: Path) -> None:
    shipped = lookup.problem("matmul_tt", ROOT)
    candidate = Candidate("mine", Path("it's mine.py"), WRONG)
    assert " --problem matmul_tt " in reproduce.command(shipped, Emulated(), Settings(), candidate, None)


def test_it_repeats_the_settings_that_decide_the_verdict(folder: Path) -> None:
    limits = Limits(call_s=5, build_s=7)
    words = printed("it's mine.py", Settings(seed=3, precision=Precision.TF32, limits=limits), Strict)
    pairs = dict(itertools.pairwise(words))
    wanted = {"--seed": "3", "--precision": "tf32", "--timeout": "5", "--build-timeout": "7", "--device": "cpu"}
    assert {name: pairs[name] for name in wanted} == wanted
    assert "--strict" in words and "--quick" not in words


def test_a_candidate_that_is_no_file_has_no_command(folder: Path) -> None:
    assert printed("nowhere.py", Settings()) == []
