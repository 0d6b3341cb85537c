"""Judges 1,000 generated candidates of 20 problems with the verb `suite`, and kills the command three times on the way.

python benchmarks/suite_1000.py [--problems 20] [--candidates 50] [--jobs 2] [--alone 10]

Of 50 candidates of a problem, 44 are Python files of torch operations, 2 are CUDA sources for the emulator (one of them
does not compile), and 4 repeat the source of another candidate. About a third is wrong, raises, ends its process, or
returns a wrong shape. The command is killed by SIGKILL, then with all its processes by SIGKILL, then by SIGTERM, and
resumed each time. After each kill the program waits until all processes have ended. Checks that each source was judged
once, that no process and no temporary file is left, and prints the memory over the last part of the run. Then judges
`--alone` of the candidates by one run of the command each, for the candidates per hour of both ways. Prints the figures
as JSON and exits with 1 if a check fails.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
_POLL_S = 0.25
_LONGEST_END_S = 60
_MEMORY_FROM = 100  # verdicts of the last part after which the memory is compared with that at the end
_MOST_GROWTH = 1.15

_PROBLEM = '''"""Generated: {text}."""

import torch
import torch.nn as nn

ROWS, COLUMNS = {rows}, {columns}


class Model(nn.Module):
    def forward(self, x):
        return {expression}


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
'''
_EXPRESSIONS = (
    "torch.relu(x) * {c}", "torch.sigmoid(x) + {c}", "torch.tanh(x * {c})", "x * x + {c}", "torch.abs(x) - {c}",
    "torch.softmax(x * {c}, dim=1)", "x.sum(dim=1) * {c}", "x.mean(dim=0) + {c}", "torch.clamp(x, -{c}, {c})",
    "torch.exp(-x * x) * {c}",
)  # fmt: skip
_CANDIDATE = '''"""Candidate {number}."""

import os

import torch


class ModelNew(torch.nn.Module):
    number = {number}

    def forward(self, x):
        {body}
'''
_CUDA = """// Candidate {number}: the product of x and 1, and then torch
#include <torch/extension.h>
__global__ void copy_{number}(const float* in, float* out, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i]{end}
}}
torch::Tensor forward(torch::Tensor x) {{
    auto y = torch::empty_like(x);
    int n = x.numel();
    copy_{number}<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return {expression};
}}
"""


def write_suite(folder: Path, problems: int, candidates: int) -> None:
    """Writes the folders `problems` and `kernels`. The same arguments always give the same files."""
    rng = random.Random(1)
    (folder / "problems").mkdir()
    for number in range(problems):
        constant = round(1.25 + number / 8, 3)
        expression = _EXPRESSIONS[number % len(_EXPRESSIONS)].format(c=constant)
        text = _PROBLEM.format(text=expression, expression=expression, rows=32 + number, columns=64)
        (folder / "problems" / f"p{number:02}.py").write_text(text)
        kernels = folder / "kernels" / f"p{number:02}"
        kernels.mkdir(parents=True)
        for index, (suffix, source) in enumerate(_sources(rng, expression, candidates)):
            (kernels / f"c{index:03}{suffix}").write_text(source)


def _sources(rng: random.Random, expression: str, count: int) -> list[tuple[str, str]]:
    repeated, cuda = max(1, count // 12), 2
    found = [(".py", _python(number, expression, rng.random())) for number in range(count - repeated - cuda)]
    # The .cu file is judged against its own problem only where the problem is x * x + c, elsewhere it is wrong.
    found += [
        (".cu", _CUDA.format(number=count, end=";", expression="y")),
        (".cu", _CUDA.format(number=count, end=" +;", expression="y")),
    ]
    return found + found[:repeated]


def _python(number: int, expression: str, draw: float) -> str:
    """Returns a candidate: of ten, about seven are right, and one each is wrong, raises, or ends its process."""
    if draw < 0.7:
        body = f"return {expression}"
    elif draw < 0.8:
        body = f"return {expression} + 1"
    elif draw < 0.87:
        body = "raise RuntimeError('refused')"
    elif draw < 0.94:
        body = f"return ({expression}).flatten()[:-1]"
    else:
        body = "os._exit(3)"
    return _CANDIDATE.format(number=number, body=body)


@dataclass
class Outcome:
    """What the program measured. Times are in seconds.

    `memory_mb` has samples of the last part: verdicts in this part, and the memory of all processes of the judge and of
    the largest one. `memory_growth` is the largest one's last sample divided by its first after 100 verdicts.
    """

    candidates: int = 0
    judged: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    kills: list[str] = field(default_factory=list)
    run_s: list[float] = field(default_factory=list)
    per_hour_last_part: float = 0.0
    per_hour_one_after_the_other: float = 0.0
    memory_mb: list[tuple[int, float, float]] = field(default_factory=list)
    memory_growth: float | None = None
    faults: list[str] = field(default_factory=list)


class Suite:
    """The command `suite` on generated files, with all its temporary files in a folder of its own."""

    def __init__(self, folder: Path, jobs: int, results: Path) -> None:
        self.folder, self._jobs, self._results = folder, jobs, results
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.environment = {**os.environ, "TMPDIR": str(self.temporary)}

    def start(self) -> subprocess.Popen[bytes]:
        """Starts or resumes the command."""
        words = [
            "suite", str(self.folder / "problems"), "--kernels", str(self.folder / "kernels"), "--device", "cpu",
            "--jobs", str(self._jobs), "--results", str(self._results), "--resume",
        ]  # fmt: skip
        log = (self.folder / "log").open("ab")
        command = [sys.executable, str(ROOT / "harness.py"), *words]
        return subprocess.Popen(
            command, cwd=self.folder, env=self.environment, stdout=log, stderr=log, start_new_session=True
        )

    @property
    def journal(self) -> Path:
        """The file with a line for each verdict."""
        return self._results / "suites" / "kernels" / "suite.jsonl"

    def verdicts(self) -> int:
        """Returns how many candidates have a verdict."""
        return self.journal.read_bytes().count(b"\n") if self.journal.exists() else 0

    def details(self) -> list[dict[str, Any]]:
        """Returns the full result of each candidate that was judged."""
        paths = self.journal.parent.glob("*/*/runs.jsonl")
        found = (json.loads(line) for path in paths for line in path.read_text().splitlines() if line)
        return [{**one, "problem": ""} for one in found if one["kind"] == "candidate"]

    def processes(self) -> list[psutil.Process]:
        """Returns every process that the command has started and that still runs."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("TMPDIR", "").startswith(str(self.temporary)):
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return [each for each in found if each.pid != os.getpid() and each.status() != psutil.STATUS_ZOMBIE]

    def left_files(self) -> list[str]:
        """Returns the names of temporary files and folders that are left."""
        return sorted(path.name for path in self.temporary.iterdir())


def run_with_kills(suite: Suite, at: Sequence[tuple[int, str]], total: int, outcome: Outcome) -> None:
    """Runs the suite to its end. Kills it as soon as it has so many verdicts, for each (verdicts, way) in `at`."""
    for verdicts, way in at:
        start = time.monotonic()
        command = suite.start()
        while suite.verdicts() < verdicts and command.poll() is None:
            time.sleep(_POLL_S)
        if command.poll() is not None:
            outcome.faults.append(f"the command ended by itself with {command.returncode} before the kill {way}")
            return
        _kill(suite, command, way)
        seconds = _wait_for_end(suite)
        outcome.run_s.append(time.monotonic() - start)
        left = suite.left_files()
        outcome.kills.append(f"{way} at {suite.verdicts()}: ended in {seconds:.1f} s, {len(left)} folders left")
        if suite.processes():
            outcome.faults.append(f"processes left after {way}")
        if left and way != "SIGKILL to all":
            outcome.faults.append(f"temporary files left after {way}: {left}")
    start, before = time.monotonic(), suite.verdicts()
    command = suite.start()
    while command.poll() is None:
        _sample(suite, before, outcome)
        time.sleep(5)
    seconds = time.monotonic() - start
    outcome.run_s.append(seconds)
    outcome.per_hour_last_part = (suite.verdicts() - before) / seconds * 3600
    if suite.processes() or suite.left_files():
        outcome.faults.append(f"left at the end: {suite.processes()} {suite.left_files()}")
    if suite.verdicts() != total:
        outcome.faults.append(f"{suite.verdicts()} verdicts for {total} candidates")


def _kill(suite: Suite, command: subprocess.Popen[bytes], way: str) -> None:
    if way == "SIGKILL to all":
        for process in suite.processes():
            process.kill()
    command.send_signal(signal.SIGTERM if way == "SIGTERM" else signal.SIGKILL)
    command.wait()


def _wait_for_end(suite: Suite) -> float:
    start = time.monotonic()
    while suite.processes() and time.monotonic() < start + _LONGEST_END_S:
        time.sleep(_POLL_S)
    return time.monotonic() - start


def _sample(suite: Suite, before: int, outcome: Outcome) -> None:
    """Records the memory of the driver and of the device workers: the sum and the largest."""
    sizes = []
    for process in suite.processes():
        try:
            words = process.cmdline()
            if any(word.endswith("harness.py") or word == "kernel_harness.suite.judging_process" for word in words):
                sizes.append(process.memory_full_info().uss / 1e6)
        except (psutil.Error, OSError):
            continue
    if sizes:
        outcome.memory_mb.append((suite.verdicts() - before, sum(sizes), max(sizes)))


def check_judged_once(suite: Suite, outcome: Outcome) -> None:
    """Checks that each different source of a problem was judged exactly once."""
    details = suite.details()
    outcome.judged = len(details)
    entries = [json.loads(line) for line in suite.journal.read_text().splitlines()]
    outcome.statuses = dict(Counter(entry["status"] for entry in entries).most_common())
    lines = Counter((entry["problem"], entry["candidate"]) for entry in entries)
    outcome.faults += [f"{name} has {count} verdicts" for name, count in lines.items() if count != 1]
    different = len({entry["key"] for entry in entries})
    if len(details) != different:
        outcome.faults.append(f"{len(details)} judgements of {different} different candidates")


def one_after_the_other(suite: Suite, count: int) -> float:
    """Judges some candidates by a run of the command each. Returns the candidates per hour."""
    paths = sorted((suite.folder / "kernels").glob("*/*"))
    chosen = paths[:: max(1, len(paths) // count)][:count]
    start = time.monotonic()
    for path in chosen:
        problem = suite.folder / "problems" / f"{path.parent.name}.py"
        words = ["--problem", str(problem), "--kernel", str(path), "--device", "cpu", "--budget", "0.3"]
        command = [sys.executable, str(ROOT / "harness.py"), *words, "--results", str(suite.folder / "alone")]
        subprocess.run(command, cwd=suite.folder, env=suite.environment, capture_output=True)
    return len(chosen) / (time.monotonic() - start) * 3600


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--problems", type=int, default=20)
    parser.add_argument("--candidates", type=int, default=50, help="the candidates of each problem")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--alone", type=int, default=10)
    options = parser.parse_args()
    total = options.problems * options.candidates
    outcome = Outcome(candidates=total)
    with tempfile.TemporaryDirectory(prefix="suite-1000-") as name:
        write_suite(Path(name), options.problems, options.candidates)
        suite = Suite(Path(name), options.jobs, Path(name) / "results")
        kills = [(total // 10, "SIGKILL"), (total // 5, "SIGKILL to all"), (total * 3 // 10, "SIGTERM")]
        run_with_kills(suite, kills, total, outcome)
        check_judged_once(suite, outcome)
        outcome.per_hour_one_after_the_other = one_after_the_other(suite, options.alone)
        print((suite.folder / "log").read_text()[-3000:], file=sys.stderr)
    samples = [sample for sample in outcome.memory_mb if sample[2] > 0.5 * outcome.memory_mb[-1][2]]
    warm = [largest for verdicts, _, largest in samples if verdicts >= _MEMORY_FROM]
    if warm:
        outcome.memory_growth = warm[-1] / warm[0]
        outcome.faults += ["the memory grew"] if outcome.memory_growth > _MOST_GROWTH else []
    outcome.memory_mb = samples[:: max(1, len(samples) // 12)] + samples[-1:]
    print(json.dumps(asdict(outcome), indent=1))
    return int(bool(outcome.faults))


if __name__ == "__main__":
    sys.exit(main())
