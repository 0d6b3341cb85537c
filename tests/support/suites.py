"""Small suites for tests: files of problems and candidates, entries, and a suite whose device workers are simulated."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from kernel_harness.core.status import Status
from kernel_harness.session.settings import Settings
from kernel_harness.suite import collection
from kernel_harness.suite.allocation import Allocation
from kernel_harness.suite.scheduler import LocalScheduler
from kernel_harness.suite.store import Entry, SuiteStore
from kernel_harness.suite.suite import Suite
from kernel_harness.timing.intervals import Interval

SIMULATED = Path(__file__).with_name("simulated_worker.py")
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


def suite(
    folder: Path,
    candidates: dict[str, str],
    *,
    workers: int = 1,
    builds: int = 1,
    settings: Settings | None = None,
    problem: str = "",
) -> tuple[Suite, Heard, SuiteStore]:
    """A suite of `candidates` (`<problem>/<name>.py` to source), which stores in `folder`/out.

    `problem` is the text of every problem file.
    """
    problems = {f"problems/{name.split('/')[0]}.py": problem for name in candidates}
    write(folder, {**problems, **{f"kernels/{name}": text for name, text in candidates.items()}})
    found = collection.collect([str(folder / "problems")], folder / "kernels", folder)
    heard, store = Heard(), SuiteStore(folder / "out")
    start = partial(LocalScheduler, Allocation(("cpu",) * workers, builds))
    return Suite(found, settings or Settings(seed=1), start, store, heard), heard, store
