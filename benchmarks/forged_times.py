"""Shows on a GPU which time the harness reports for kernels that hide a part of their work, and for honest kernels.

    python benchmarks/forged_times.py [--device cuda] [--budget SECONDS] [--us US ...] [--among N] [--out FILE]
    python benchmarks/forged_times.py --write FILE

Each kernel spins for a given time. Forged kernels scale the time that the device's events measured, or work where the
events do not see it. Honest kernels do the same work in other ways. The table shows the reported time divided by the
time of "torch", which does the same work, and to what share of it the judge's clock verified the device's. `--write`
puts the table that another run has stored into docs/timing.md. With `--among 50`, further copies are judged in the same
run, 50 kernels in all; the time that is spent on each is then shorter.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import pages

from kernel_harness import device as devices
from kernel_harness.problem.candidate import Candidate
from kernel_harness.problem.problem import load as load_problem
from kernel_harness.results.record import Result
from kernel_harness.session.run import SilentObserver
from kernel_harness.session.session import Session
from kernel_harness.session.settings import Settings

CYCLES_PER_US = 1980.0  # an H200 under load; the spin times of other devices differ a little
PROBLEM = """
import torch

CYCLES = {cycles}
N = 1 << 16


class Model(torch.nn.Module):
    def forward(self, x):
        torch.cuda._sleep(CYCLES)
        return x + 1


def get_inputs():
    return [torch.rand(N)]


def get_init_inputs():
    return []
"""
KERNEL = """
import dataclasses, threading, time, torch
from kernel_harness.device.cuda import Cuda

CYCLES, FACTOR = {cycles}, {factor}
honest = Cuda.timed


def forged(self, call, *, hold, cold):
    result, clocked = honest(self, call, hold=hold, cold=cold)
    return result, dataclasses.replace(clocked, device_ms=clocked.device_ms * FACTOR)


if FACTOR != 1:
    Cuda.timed = forged


class ModelNew(torch.nn.Module):
    stream = None

    def forward(self, x):
        self.stream = self.stream or torch.cuda.Stream()
        out = torch.empty_like(x)
{body}
        return out
"""
PLAIN = """
        torch.cuda._sleep(CYCLES)
        torch.add(x, 1, out=out)
"""
WAITS = "self.stream.wait_stream(torch.cuda.current_stream())"
FORKED = """
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            torch.cuda._sleep(CYCLES)
            torch.add(x, 1, out=out)
"""
BUSY = """
        end = time.perf_counter() + 5e-5
        while time.perf_counter() < end:
            pass
"""
TWICE = """
        torch.cuda._sleep(CYCLES // 2)
        torch.cuda._sleep(CYCLES // 2)
        torch.add(x, 1, out=out)
"""
HONEST = {
    "a copy": PLAIN,
    "another copy": PLAIN,
    "busy host before the launch": BUSY + PLAIN,
    "two spins": TWICE,
    "a joined side stream": FORKED + "        torch.cuda.current_stream().wait_stream(self.stream)",
    "a call that synchronizes": PLAIN + "        torch.cuda.synchronize()",
}
HIDING = {
    "a side stream that is not joined": FORKED,
    "a side stream that does not wait for the inputs": FORKED.replace(WAITS, "pass"),
    "work in a thread": """
        self.stream.wait_stream(torch.cuda.current_stream())
        def work():
            with torch.no_grad(), torch.cuda.stream(self.stream):
                torch.cuda._sleep(CYCLES)
                torch.add(x, 1, out=out)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
""",
}
FACTORS = (0.95, 0.85, 0.6)
FURTHER = "further copy "


def main() -> None:
    """Judges the kernels at each duration and prints the table, or writes the table of stored rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N (default: cuda)")
    parser.add_argument("--budget", type=float, help="seconds of timing at each duration (default: the device's)")
    parser.add_argument("--us", type=float, nargs="+", default=[2770.0, 50.0, 5.0], help="durations in microseconds")
    parser.add_argument("--among", type=int, default=0, metavar="N", help="judge N kernels in all, the others copies")
    parser.add_argument("--out", type=Path, help="append the rows to this file, a line of JSON for each")
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="write the table of the rows in FILE; measure nothing"
    )
    options = parser.parse_args()
    if options.write:
        rows = [json.loads(line) for line in options.write.read_text().splitlines()]
        pages.write("timing.md", "forged times", table(rows))
        return
    rows = []
    for microseconds in options.us:
        for result in judged(microseconds, options.device, options.budget, options.among):
            rows.append(_row(microseconds, result))
            if options.out:
                with options.out.open("a") as file:
                    print(json.dumps(rows[-1]), file=file)
    print(table(rows))
    for microseconds in options.us:
        copies = [row for row in rows if row["us"] == microseconds and row["kernel"].startswith(FURTHER)]
        told = [row["reported"] for row in copies if "reported" in row]
        if told:
            passed = f"{microseconds:g} us: {len(told)} of {len(copies)} further copies passed"
            print(f"{passed}, reported as {min(told):.4f} to {max(told):.4f}")


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns a Markdown table of the kernels: the reported time at each duration, and how far it is verified."""
    durations = sorted({row["us"] for row in rows}, reverse=True)
    kernels = [k for k in (*HONEST, *HIDING, *_scaled()) if any(row["kernel"] == k for row in rows)]
    found = {(row["kernel"], row["us"]): row for row in rows}
    lines = []
    for kernel in kernels:
        line = [kernel]
        for us in durations:
            row = found.get((kernel, us), {})
            reported, verified = row.get("reported"), row.get("verified_to")
            line.append(f"{reported:.3f}" if reported else row.get("status", ""))
            line.append(f"{verified:.1%}" if verified else "")
        lines.append(line)
    headers = ["kernel", *(text for us in durations for text in (f"{us:g} us: reported", "verified to"))]
    return tabulate(lines, headers, tablefmt="github", disable_numparse=True)


def judged(microseconds: float, device: str, budget_s: float | None, among: int) -> list[Result]:
    """Returns the results of all kernels that spin for so many microseconds: at least `among`, with further copies."""
    cycles = int(microseconds * CYCLES_PER_US)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spin.py"
        path.write_text(PROBLEM.format(cycles=cycles))
        problem = load_problem("spin", path)
        with Session(problem, devices.named(device), Settings(budget_s=budget_s), SilentObserver()) as session:
            return list(session.judge(_candidates(cycles, among), lambda result: None))


def _scaled() -> dict[str, float]:
    return {f"device time x {factor:g}": factor for factor in FACTORS}


def _candidates(cycles: int, among: int) -> list[Candidate]:
    made: Mapping[str, str] = {
        **{name: KERNEL.format(cycles=cycles, factor=1, body=body) for name, body in (HONEST | HIDING).items()},
        **{name: KERNEL.format(cycles=cycles, factor=f, body=PLAIN) for name, f in _scaled().items()},
    }
    copies = {f"{FURTHER}{i}": KERNEL.format(cycles=cycles, factor=1, body=PLAIN) for i in range(among - len(made))}
    return [Candidate(name, Path(f"{name}.py"), source) for name, source in (made | copies).items()]


def _row(microseconds: float, result: Result) -> dict[str, Any]:
    row: dict[str, Any] = {"us": microseconds, "kernel": result.kernel, "status": result.status}
    timing, measurement = result.timing, result.measurement
    if timing is None or measurement is None or timing.speedup is None:
        return {**row, "reason": result.reason}
    low, high, verified_ms = timing.speedup.low, timing.speedup.high, measurement.verified_to_ms
    beyond = measurement.beyond_device_ms
    return {
        **row,
        "reported": 1 / timing.speedup.estimate,
        "low": 1 / high if high else None,
        "high": 1 / low if low else None,
        "verified_to": verified_ms / timing.time_ms if verified_ms else None,
        "beyond_ms": [beyond.low, beyond.estimate, beyond.high] if beyond else None,
        "rounds": timing.rounds,
    }


if __name__ == "__main__":
    main()
