"""The commands `make run` and `make test`, and CI, which runs the same tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.command import ROOT

TESTS = ".ci/tests"


def planned(target: str, folder: Path) -> str:
    """The commands that make would run in a checkout without a virtual environment."""
    for name in ("Makefile", "requirements.txt", "tests/requirements.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return subprocess.run(["make", "-n", target], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not on the PATH")
@pytest.mark.parametrize(
    ("target", "requirements", "last"),
    [("run", "requirements.txt", "python harness.py --problem matmul_tt"), ("test", "tests/requirements.txt", TESTS)],
)
def test_one_command_makes_the_environment_and_runs(target: str, requirements: str, last: str, tmp_path: Path) -> None:
    commands = planned(target, tmp_path)
    assert "-m venv .venv" in commands and f"pip install --quiet -r {requirements}\n" in commands
    assert commands.strip().endswith(f". .venv/bin/activate && {last}")


def test_ci_ends_with_the_command_that_make_test_runs() -> None:
    """So pytest's summary is the last output of CI."""
    assert (ROOT / ".ci" / "run").read_text().rstrip().split("\n")[-1] == TESTS
    assert os.access(ROOT / TESTS, os.X_OK) and "exec python -m pytest" in (ROOT / TESTS).read_text()
