"""Runs leave a checkout clean: git ignores what they write."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support import forked_command
from support.command import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("git") is None or not (ROOT / ".git").exists(), reason="this is no git checkout"),
]


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@x", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository of its own that holds the files of this one as they are now."""
    folder = tmp_path / "checkout"
    for name in git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "as it is")
    return folder


def test_git_status_is_empty_after_a_run_a_failure_and_a_report(checkout: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.cu"
    broken.write_text("this is no CUDA\n")
    run = ["--problem", "matmul_tt", "--device", "cpu", "--quick", "--rounds", "8", "--shape", "M=16,K=16,N=16"]
    for words, code in (
        ([*run, "--kernel", "naive", "--kernel", broken], 1),
        (["list"], 0),
        (["report", "matmul_tt"], 0),
        (["report", "--readme", "README.md"], 0),
    ):
        done = forked_command.run(checkout / "harness.py", words, checkout)
        assert done.returncode == code, done.stderr
    written = {path.name for path in (checkout / "results" / "matmul_tt" / "cpu-emulated").iterdir()}
    assert written >= {"runs.jsonl", "leaderboard-M16-K16-N16.csv", "logs", "report-M16-K16-N16.html"}
    assert git(checkout, "status", "--porcelain") == ""
