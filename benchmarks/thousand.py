"""A thousand candidates in one run, right, wrong and dying: does the judge leave anything behind, does it grow?

    python benchmarks/thousand.py [COUNT]

Prints what the judging process holds after every hundred, and in the end what is left: processes, descriptors, shared
memory, temporary files. Exits with 1 where anything is. What a candidate adds to the memory of the judge and of the
process that workers are forked from is told, too, once the first three hundred have warmed them up.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
PROBLEM = ROOT / "tests" / "candidates" / "problem" / "product.py"
_HEAD = """import os
import torch

class ModelNew(torch.nn.Module):
    number = {number}

    def forward(self, A, B):
"""
# What candidates written by the thousand do. Two in nine are right: of every batch that is held, one cohort.
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
    """What this process holds: memory in bytes, its template's too, descriptors, processes, shared memory, files."""

    memory: int
    template: int
    descriptors: int
    processes: int
    segments: int
    files: int


def held() -> Held:
    """Now."""
    me = psutil.Process()
    return Held(
        me.memory_info().rss, sum(child.memory_info().rss for child in me.children()), me.num_fds(),
        len(me.children(recursive=True)), Path("/proc/self/maps").read_text().count("/memfd:"),
        len(list(Path(tempfile.gettempdir()).iterdir())),
    )  # fmt: skip


def judge(count: int, tell: bool = True) -> tuple[Held, list[Held], Held, dict[str, int]]:
    """Before, after every hundred results, and after all; and how many candidates got which status."""
    from kernel_harness import device, problem
    from kernel_harness.candidate import Candidate
    from kernel_harness.judge import Session
    from kernel_harness.results import Result
    from kernel_harness.settings import Settings

    class Watching:
        settled_count = 0

        def stage(self, kernel: str, text: str) -> None:
            """Nothing is shown."""

        def settled(self, result: Result) -> None:
            """Counts."""
            if result.kind == "candidate":
                statuses[result.status] = statuses.get(result.status, 0) + 1
                self.settled_count += 1
                if self.settled_count % 100 == 0:
                    during.append(held())
                    if tell:
                        print(self.settled_count, during[-1], flush=True)

    statuses: dict[str, int] = {}
    during: list[Held] = []
    candidates = [
        Candidate(f"c{i}", Path(f"c{i}.py"), _HEAD.format(number=i) + _BODIES[i % len(_BODIES)]) for i in range(count)
    ]
    emulated = device.named("cpu")
    emulated.prepare()
    before = held()
    settings = Settings(rounds=2, quick=True)
    with Session(problem.load("product", PROBLEM), emulated, settings, Watching()) as session:
        session.judge(candidates, lambda result: None)
    return before, during, held(), statuses


def left(before: Held, after: Held) -> dict[str, int]:
    """What there is more of than before, of what should be as it was."""
    names = ("descriptors", "processes", "segments", "files")
    return {name: more for name in names if (more := getattr(after, name) - getattr(before, name)) > 0}


def added(during: Sequence[Held]) -> dict[str, float]:
    """Bytes a candidate: the slope of a line through what was held from the third hundred on (least squares)."""
    counts = range(300, 100 * len(during) + 1, 100)
    return {
        name: linear_regression(counts, [getattr(held, name) for held in during[2:]]).slope
        for name in ("memory", "template")
        if len(counts) > 1
    }


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as own:
        # A folder of its own: other programs have files in the usual one.
        os.environ["TMPDIR"] = tempfile.tempdir = own
        before, during, after, statuses = judge(count)
        print(json.dumps({"before": vars(before), "after": vars(after), "added": added(during), "statuses": statuses}))
        return 1 if left(before, after) else 0


if __name__ == "__main__":
    sys.exit(main())
