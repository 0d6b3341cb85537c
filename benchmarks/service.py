"""Submits 10,000 kernels of 200 clients to a server, and kills the server three times on the way.

python benchmarks/service.py [--submissions 10000] [--clients 200] [--sources 2000] [--rate 100] [--judge-s 0.05]

The server is that of the verb `serve`, in a process of its own, but its evaluators are replaced by a stand-in: each
kernel passes after `--judge-s` seconds, up to 64 at the same time. So the figures are those of the service alone: HTTP,
the queue, the store. The clients are `kernel_harness.client.Client` in threads of four processes. Together they submit
`--rate` kernels a second, drawn from `--sources` different ones; a kernel that is known already is answered from the
store. The server is ended by SIGKILL after a tenth, two tenths and three tenths of the submissions, and started again.

The overhead of a submission is the time until its client has the verdict, less `--judge-s` if its kernel was judged.
Submissions during which the server was down, or that began in the ten seconds after it (the clients then send at once
what they could not send before), are counted apart. Checks that every submission got the verdict of its own
source, that no kernel was judged again whose verdict was stored, and that the memory of the server does not grow by
more than 5% over the second half. Prints the figures as JSON and exits with 1 if a check fails.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from kernel_harness.checking.verify import Check
from kernel_harness.client import Client
from kernel_harness.core.status import Status
from kernel_harness.problem.candidate import Candidate
from kernel_harness.results.record import Result
from kernel_harness.service import server
from kernel_harness.service.store import Store
from kernel_harness.timing.intervals import Interval
from kernel_harness.timing.statistics import Timing

_PROCESSES = 4
_SHAPE = {"M": 48, "K": 256, "N": 64}
_CHECKS = 12
_KILLED_AT = (0.1, 0.2, 0.3)
_MOST_GROWTH = 1.05
_SETTLING_S = 10.0
_TICK_S = 0.05


class StandIn:
    """Evaluators that pass each kernel after `judge_s` seconds. Appends the hash of each source to `log` first."""

    capacity = 64

    def __init__(self, judge_s: float, log: Path) -> None:
        self._judge_s, self._log = judge_s, log.open("a", buffering=1)
        self._threads = ThreadPoolExecutor(self.capacity)

    def settings(self, **options: Any) -> None:
        """Takes all options."""

    def submit(self, problem: Path, source: Candidate, **options: Any) -> Future[Result]:
        """Returns the future of the result."""
        self._log.write(f"{source.sha256}\n")
        return self._threads.submit(self._judged, source)

    def _judged(self, source: Candidate) -> Result:
        time.sleep(self._judge_s)
        checks = tuple(Check(f"case {n}", Status.PASSED, 1e-5, 1e-7, shape=_SHAPE) for n in range(_CHECKS))
        timing = Timing((1.0,) * 16, (), Interval(0.9, 1.0, 1.1), Interval(0.9, 1.0, 1.1))
        return Result("candidate", Status.PASSED, "", _SHAPE, source.sha256, checks=checks, timing=timing)


def serve(folder: Path, port: int, judge_s: float) -> None:
    """Runs the server in this process."""
    with server.listening("127.0.0.1", port, has_tokens=False) as listener, Store(folder / "state") as store:
        judge = StandIn(judge_s, folder / "judged")
        server.serve(server.Serving(store, judge, "stand-in", folder / "problems"), listener)


@dataclass
class ServerProcess:
    """The server's process, and the times at which it was down."""

    folder: Path
    port: int
    judge_s: float
    down: list[tuple[float, float]] = field(default_factory=list)

    def start(self) -> None:
        """Starts the process and waits until it answers."""
        words = [sys.executable, __file__, "--serve", str(self.folder), str(self.port), str(self.judge_s)]
        self.process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
        while True:
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(_TICK_S)

    def kill(self) -> set[str]:
        """Kills the process and starts it again. Returns the sources whose verdict was stored before."""
        begin = time.time()
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        with sqlite3.connect(self.folder / "state" / "jobs.sqlite") as db:
            rows = db.execute("SELECT result FROM work WHERE state = 'done'").fetchall()
        self.start()
        self.down.append((begin, time.time()))
        return {json.loads(row[0])["source_sha256"] for row in rows}

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.port}"


def source(number: int) -> str:
    """Returns the text of a small kernel."""
    text = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    number = {}\n\n    def forward(self, A, B):\n"
    return text.format(number) + "        return torch.matmul(A.T, B.T)\n"


def client_process(url: str, clients: int, numbers: Sequence[int], rate: float, done: Any, rows: Any) -> None:
    """Submits the kernels `numbers`, `rate` a second, from `clients` threads. Puts (begin, end, right) for each."""
    lock, queue = threading.Lock(), iter(enumerate(numbers))
    start, found = time.time(), []

    def one() -> None:
        client = Client(url)
        while True:
            with lock:
                item = next(queue, None)
            if item is None:
                return
            time.sleep(max(0.0, start + item[0] / rate - time.time()))
            text, begin = source(item[1]), time.time()
            result = client.evaluate("matmul_tt", text)
            right = result.passed and result.source_sha256 == hashlib.sha256(text.encode()).hexdigest()
            with lock:
                found.append((item[1], begin, time.time(), right))
                done.value += 1

    threads = [threading.Thread(target=one) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows.put(found)


def measured(parsed: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Runs the whole benchmark and returns its figures."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = ServerProcess(folder, port, parsed.judge_s)
    running.start()
    rng = random.Random(1)
    numbers = [rng.randrange(parsed.sources) for _ in range(parsed.submissions)]
    context = multiprocessing.get_context("spawn")
    rows, done = context.Queue(), [context.Value("i", 0) for _ in range(_PROCESSES)]
    share = parsed.clients // _PROCESSES
    processes = [
        context.Process(
            target=client_process,
            args=(running.url, share, numbers[n::_PROCESSES], parsed.rate / _PROCESSES, done[n], rows),
        )
        for n in range(_PROCESSES)
    ]
    for process in processes:
        process.start()
    twice, memory = watch(running, parsed.submissions, done)
    found = [row for _ in processes for row in rows.get()]
    for process in processes:
        process.join()
    running.process.terminate()
    running.process.wait()
    return figures(parsed, running, found, twice, memory)


def watch(running: ServerProcess, submissions: int, done: Sequence[Any]) -> tuple[int, list[int]]:
    """Kills the server on the way. Returns how many kernels were judged twice, and the memory over the second half."""
    log, stored, memory = running.folder / "judged", [], []
    kills = [share * submissions for share in _KILLED_AT]
    while (answered := sum(value.value for value in done)) < submissions:
        if kills and answered >= kills[0]:
            kills.pop(0)
            known = running.kill()
            stored.append((known, len(log.read_text().split())))
        if answered >= submissions / 2:
            memory.append(psutil.Process(running.process.pid).memory_info().rss)
        time.sleep(_TICK_S)
    judged = log.read_text().split()
    return sum(sha in known for known, at in stored for sha in judged[at:]), memory


def figures(
    parsed: argparse.Namespace, running: ServerProcess, found: list[Any], twice: int, memory: list[int]
) -> dict[str, Any]:
    """Returns the figures of the whole run, and whether each check passed."""
    first: dict[int, float] = {}
    for number, begin, _, _ in sorted(found, key=lambda row: row[1]):
        first.setdefault(number, begin)
    overhead: dict[str, list[float]] = {"judged": [], "stored": []}
    interrupted, settling = [], []
    for number, begin, end, _ in found:
        if any(begin < up and end > down for down, up in running.down):
            interrupted.append(end - begin)
        elif any(up <= begin < up + _SETTLING_S for _, up in running.down):
            settling.append(end - begin)
        elif first[number] == begin:
            overhead["judged"].append(end - begin - parsed.judge_s)
        elif begin - first[number] > 1:  # else it may wait for the verdict of an equal kernel
            overhead["stored"].append(end - begin)
    judged = Counter((running.folder / "judged").read_text().split())
    growth = max(memory[len(memory) // 2 :]) / memory[0]
    checks = {
        "none lost": len(found) == parsed.submissions and all(right for *_, right in found),
        "none judged twice": twice == 0,
        "memory flat": growth <= _MOST_GROWTH,
    }
    return {
        "submissions": len(found), "sources": len(judged), "judgements": judged.total(), "kills": len(running.down),
        "judged_twice": twice, "interrupted": len(interrupted), "longest_interrupted_s": round(max(interrupted), 1),
        "down_s": [round(up - down, 1) for down, up in running.down],
        "memory_mb": [round(memory[0] / 1e6), round(memory[-1] / 1e6)], "memory_growth": round(growth, 3),
        "overhead_ms": {kind: percentiles(times) for kind, times in overhead.items()},
        "in_ten_seconds_after_a_start_ms": percentiles(settling),
        "overhead_of_all_ms": percentiles([*overhead["judged"], *overhead["stored"]]), "checks": checks,
        "load": [round(each, 1) for each in os.getloadavg()],
    }  # fmt: skip


def percentiles(times_s: list[float]) -> dict[str, float]:
    """Returns the number of times, their median and their 95th percentile, in ms."""
    cuts = quantiles(times_s, n=100)
    return {"n": len(times_s), "p50": round(cuts[49] * 1e3, 1), "p95": round(cuts[94] * 1e3, 1)}


def main() -> int:
    """Runs the benchmark, or the server for it. Returns the exit code."""
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--submissions", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--sources", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--judge-s", type=float, default=0.05)
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measured(parsed, Path(folder))
    print(json.dumps(found, indent=2))
    return 0 if all(found["checks"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
