"""The command, run as a user runs it, and the places of the checkout that tests name."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from .forked_command import ForkedCommand, fits

ROOT = Path(__file__).resolve().parents[2]
CANDIDATES = ROOT / "tests" / "support" / "candidates"
# More than a cold cache needs; a run that takes longer hangs.
LONGEST_S = 1500

Process = subprocess.Popen[str] | ForkedCommand


class Harness:
    """`python harness.py` in the checkout's root, with results and temporary files in a folder of its own."""

    def __init__(self, folder: Path, results: Path | None = None, *, warm: bool = True) -> None:
        """If not `warm`, a run starts its fork server as a new process, which is then below the run's process."""
        self.warm = warm
        self.results = results or folder / "results"
        self.temporary = folder / "temporary"
        self.temporary.mkdir()

    def run(self, *arguments: str | Path, environment: Mapping[str, str] | None = None) -> Finished:
        """The command from start to end."""
        return finished(self.start(*arguments, environment=environment))

    def start(self, *arguments: str | Path, environment: Mapping[str, str] | None = None) -> Process:
        """The command, under way."""
        words = [*arguments, "--results", self.results]
        environment = {**os.environ, "TMPDIR": str(self.temporary), **(environment or {})}
        if fits(environment):
            return ForkedCommand(ROOT / "harness.py", words, ROOT, environment, self.warm)
        return subprocess.Popen(
            [sys.executable, ROOT / "harness.py", *words],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_hear_interrupts,
        )

    def candidates_processes(self) -> list[psutil.Process]:
        """What workers are and what they have started: nothing else stands in that folder."""
        return standing_in(self.temporary)

    def journal(self, problem: str) -> list[dict[str, Any]]:
        """Every line of runs.jsonl, which must all be whole; none where there is no file."""
        path = self.runs(problem)
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def runs(self, problem: str) -> Path:
        """The file of the emulated device's journal."""
        return self._folder(problem) / "runs.jsonl"

    def leaderboard(self, problem: str) -> Path:
        """The main leaderboard of the emulated device."""
        return self._folder(problem) / "leaderboard.csv"

    def _folder(self, problem: str) -> Path:
        return self.results / problem / "cpu-emulated"


class Finished:
    """How a command ended, and what it said."""

    def __init__(self, code: int, stdout: str, stderr: str) -> None:
        self.code, self.stdout, self.stderr = code, stdout, stderr

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """What `--json` printed, by kernel."""
        assert self.stdout, self.stderr
        return {record["kernel"]: record for record in map(json.loads, self.stdout.splitlines())}


def finished(process: Process) -> Finished:
    """A command at its end. Raises TimeoutExpired where it hangs."""
    try:
        stdout, stderr = process.communicate(timeout=LONGEST_S)
    except subprocess.TimeoutExpired:
        process.terminate()  # as Ctrl-C, it ends the workers too
        process.communicate()
        raise
    return Finished(process.returncode, stdout, stderr)


def refusal_without(package: str, verb: str) -> str:
    """What the command writes to stderr for a verb whose package is not installed. Its exit code must be 4."""
    code = (
        f"import sys; sys.modules[{package!r}] = None; from kernel_harness.cli import main; sys.exit(main([{verb!r}]))"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 4, found.stderr
    return found.stderr


def standing_in(folder: Path) -> list[psutil.Process]:
    """Processes whose working directory lies in a folder, as `info["cwd"]` says."""
    inside = f"{folder.resolve()}/"
    return [p for p in psutil.process_iter(["cwd"]) if (p.info["cwd"] or "").startswith(inside)]


def whole_lines(path: Path) -> list[dict[str, Any]]:
    """What is on the disk of a file that its run may be writing to, or just now have removed."""
    try:
        lines = path.read_text().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def stopped_by_the_machine(cheat: str) -> bool:
    """Whether what one of `cheats` does fails in any process here, behind no wall of ours."""
    path = ROOT / "tests" / "adversarial" / "cheats" / f"{cheat}.py"
    script = f"import runpy; raise SystemExit(runpy.run_path({str(path)!r})['worked'])"
    return subprocess.run([sys.executable, "-c", script], cwd=ROOT).returncode == 0


def until(condition: Callable[[], Any], what: str, deadline_s: float = 60) -> Any:
    """The first true value of `condition`."""
    end = time.monotonic() + deadline_s
    while not (value := condition()):
        assert time.monotonic() < end, f"waited {deadline_s:g} s until {what}"
        time.sleep(0.02)
    return value


def _hear_interrupts() -> None:
    # A shell starts background jobs with SIGINT ignored, and the test run may be such a job.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
