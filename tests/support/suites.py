"""Small suites for tests: files of problems and candidates, entries, and a suite whose evaluators are simulated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernel_harness.core.status import Status
from kernel_harness.session.settings import Settings
from kernel_harness.suite import collection
from kernel_harness.suite.dispatcher import Staff
from kernel_harness.suite.driver import Driver, Request
from kernel_harness.suite.entry import Entry
from kernel_harness.suite.journal import SuiteJournal
from kernel_harness.timing.statistics import Interval

SIMULATED = Path(__file__).with_name("simulated_evaluator.py")
PROBLEM = """
import torch
import torch.nn as nn

N = 32


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * {factor}


def get_inputs():
    return [torch.randn(N, 16)]


def get_init_inputs():
    return []
"""
CANDIDATE = """
import torch


class ModelNew(torch.nn.Module):
    number = {number}

    def forward(self, x):
        return torch.relu(x) * {factor}
"""


class Heard:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.done: list[Entry] = []
        self.entries: list[Entry] = []
        self.unusables: dict[str, str] = {}

    def began(self, done: Sequence[Entry]) -> None:
        self.done += done

    def finished(self, entries: Sequence[Entry]) -> None:
        self.entries += entries

    def unusable(self, problem: str, reason: str) -> None:
        self.unusables[problem] = reason

    def tick(self) -> None:
        pass


def entry(
    problem: str,
    candidate: str,
    speedup: float | None = None,
    status: Status = Status.PASSED,
    emulated: bool = False,
    share_of_bound: float | None = None,
) -> Entry:
    """An entry of its own key."""
    interval = None if speedup is None else Interval(speedup * 0.99, speedup, speedup * 1.01)
    key = f"{problem}/{candidate}"
    return Entry(
        problem, candidate, key, key, status, speedup=interval, share_of_bound=share_of_bound, emulated=emulated,
        baseline="torch",
    )  # fmt: skip


def write(folder: Path, sources: dict[str, str]) -> None:
    """Writes files by their path below a folder."""
    for name, text in sources.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def driver(
    folder: Path,
    candidates: dict[str, str],
    *,
    evaluators: int = 1,
    ahead: int = 1,
    settings: Settings | None = None,
    problem: str = "",
) -> tuple[Driver, Heard, SuiteJournal]:
    """A driver of a suite of `candidates` (`<problem>/<name>.py` to source), which stores in `folder`/out.

    `problem` is the text of every problem file.
    """
    problems = {f"problems/{name.split('/')[0]}.py": problem for name in candidates}
    write(folder, {**problems, **{f"kernels/{name}": text for name, text in candidates.items()}})
    found = collection.collect([str(folder / "problems")], folder / "kernels", folder)
    heard, journal = Heard(), SuiteJournal(folder / "out")
    request = Request(found, settings or Settings(seed=1), Staff(("cpu",) * evaluators, ahead))
    return Driver(request, journal, heard), heard, journal
