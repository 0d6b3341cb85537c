"""Judges many right, wrong and dying candidates in one run, and finds what the judge leaks.

    python -m tests.support.many_candidates [COUNT]

Prints what the judge's process holds after every hundred results, and a summary as JSON: before, after, bytes added
per candidate, and how many candidates got which status. Exits with 1 if descriptors, processes, shared memory or
temporary files are left. COUNT is 1000 by default.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import linear_regression

import psutil

from kernel_harness import device
from kernel_harness.problem.candidate import Candidate
from kernel_harness.results.record import Result
from kernel_harness.session.session import Session
from kernel_harness.session.settings import Settings

from .product import PROBLEM

WARMED_UP = 300  # candidates after which the memory of the judge and the fork server should no longer grow
_HEAD = """import os
import torch

class ModelNew(torch.nn.Module):
    number = {number}

    def forward(self, A, B):
"""
# Two bodies of nine are right: one cohort in each batch of candidates that a run holds at a time.
_BODIES = (
    "        return torch.matmul(A.T, B.T)\n",
    "        return torch.matmul(B, A).T\n",
    "        return torch.zeros(A.shape[1], B.shape[0], device=A.device)\n",
    "        return A\n",
    "        return torch.empty(A.shape[1], B.shape[0], device=A.device)\n",
    "        return torch.matmul(A.T, B.T) + 1\n",
    "        os._exit(self.number % 256)\n",
    "        raise RuntimeError(str(self.number))\n",
    "        if os.fork() == 0:\n            while True:\n                pass\n        return torch.matmul(A, B)\n",
)


@dataclass(frozen=True)
class Held:
    """What this process holds: memory in bytes, its children's memory in bytes, and counts of the rest."""

    memory: int
    fork_server: int
    descriptors: int
    processes: int
    segments: int
    files: int


def held() -> Held:
    """What it holds now."""
    me = psutil.Process()
    return Held(
        me.memory_info().rss, sum(child.memory_info().rss for child in me.children()), me.num_fds(),
        len(me.children(recursive=True)), Path("/proc/self/maps").read_text().count("/memfd:"),
        len(list(Path(tempfile.gettempdir()).iterdir())),
    )  # fmt: skip


@dataclass
class Counting:
    """An observer that counts statuses and notes what is held after every hundred candidates."""

    verbose: bool
    statuses: Counter[str] = field(default_factory=Counter)
    during: list[Held] = field(default_factory=list)

    def stage(self, kernel: str, text: str) -> None:
        """Shows nothing."""

    def settled(self, result: Result) -> None:
        """Counts a candidate's result."""
        if result.kind != "candidate":
            return
        self.statuses[result.status] += 1
        if self.statuses.total() % 100 == 0:
            self.during.append(held())
            if self.verbose:
                print(self.statuses.total(), self.during[-1], flush=True)


def judge(count: int, verbose: bool = True) -> tuple[Held, list[Held], Held, dict[str, int]]:
    """What is held before, after every hundred results, and after the run; and the count of each status."""
    candidates = [
        Candidate(f"c{i}", Path(f"c{i}.py"), _HEAD.format(number=i) + _BODIES[i % len(_BODIES)]) for i in range(count)
    ]
    emulated = device.named("cpu")
    emulated.prepare()
    counting = Counting(verbose)
    before = held()
    settings = Settings(rounds=2, quick=True)
    with Session(PROBLEM, emulated, settings, counting) as session:
        session.judge(candidates, lambda result: None)
    return before, counting.during, held(), dict(counting.statuses)


def left(before: Held, after: Held) -> dict[str, int]:
    """How many more there are of the things that a run must give back."""
    names = ("descriptors", "processes", "segments", "files")
    return {name: more for name in names if (more := getattr(after, name) - getattr(before, name)) > 0}


def added(during: Sequence[Held]) -> dict[str, float]:
    """Bytes per candidate: the least-squares slope from the candidate number WARMED_UP on."""
    counts = range(WARMED_UP, 100 * len(during) + 1, 100)
    if len(counts) < 2:
        return {}
    steady = during[WARMED_UP // 100 - 1 :]
    return {
        name: linear_regression(counts, [getattr(held, name) for held in steady]).slope
        for name in ("memory", "fork_server")
    }


def main() -> int:
    """Exit code 1 if anything is left."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as own:
        # A temporary folder of its own, because other programs put files into the usual one.
        os.environ["TMPDIR"] = tempfile.tempdir = own
        before, during, after, statuses = judge(count)
        print(json.dumps({"before": vars(before), "after": vars(after), "added": added(during), "statuses": statuses}))
        return 1 if left(before, after) else 0


if __name__ == "__main__":
    sys.exit(main())
