"""Shows on a GPU which time is told of kernels that hide a part of their time, and of honest kernels beside them.

    python benchmarks/forged_times.py [--device cuda] [--budget SECONDS] [--us MICROSECONDS ...] [--out FILE]

Each kernel spins for a given time. Forged kernels scale the time that the device's events measured, or work where the
events do not see it. Honest kernels do the same work in other ways. The table shows the told time divided by the time
of "torch", which does the same work, and to what share of it the judge's clock verified the device's.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tabulate import tabulate

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kernel_harness import device as devices
from kernel_harness.problem.candidate import Candidate
from kernel_harness.problem.problem import load as load_problem
from kernel_harness.results.record import Result, to_line
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
    "a stream that is joined": FORKED + "        torch.cuda.current_stream().wait_stream(self.stream)",
    "a call that waits": PLAIN + "        torch.cuda.synchronize()",
}
HIDING = {
    "a stream that nobody waits for": FORKED,
    "a stream without order": FORKED.replace("self.stream.wait_stream(torch.cuda.current_stream())", "pass"),
    "a thread": """
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


def main() -> None:
    """Judges the kernels at each duration and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N (default: cuda)")
    parser.add_argument("--budget", type=float, help="seconds of timing at each duration (default: the device's)")
    parser.add_argument("--us", type=float, nargs="+", default=[5.0, 50.0, 2770.0], help="durations in microseconds")
    parser.add_argument("--out", type=Path, help="append the results to this file, a line of JSON for each")
    options = parser.parse_args()
    rows = []
    for microseconds in options.us:
        for result in judged(microseconds, options.device, options.budget):
            rows.append([f"{microseconds:g} us", *_row(result)])
            if options.out:
                with options.out.open("a") as file:
                    print(to_line(result), file=file)
    print(tabulate(rows, ["spins for", "kernel", "status", "told / torch", "low", "high", "verified to", "beyond us"]))


def judged(microseconds: float, device: str, budget_s: float | None) -> list[Result]:
    """Returns the results of all kernels that spin for so many microseconds."""
    cycles = int(microseconds * CYCLES_PER_US)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spin.py"
        path.write_text(PROBLEM.format(cycles=cycles))
        problem = load_problem("spin", path)
        with Session(problem, devices.named(device), Settings(budget_s=budget_s), SilentObserver()) as session:
            return list(session.judge(_candidates(cycles), lambda result: None))


def _candidates(cycles: int) -> list[Candidate]:
    made: Mapping[str, str] = {
        **{name: KERNEL.format(cycles=cycles, factor=1, body=body) for name, body in (HONEST | HIDING).items()},
        **{f"time x {f:g}": KERNEL.format(cycles=cycles, factor=f, body=PLAIN) for f in FACTORS},
    }
    return [Candidate(name, Path(f"{name}.py"), source) for name, source in made.items()]


def _row(result: Result) -> list[object]:
    timing, measurement = result.timing, result.measurement
    if timing is None or measurement is None or timing.speedup is None:
        return [result.kernel, result.status, result.reason[:60], "", "", "", ""]
    interval = timing.speedup
    verified = measurement.verified_to_ms
    beyond = measurement.beyond_device_ms
    return [
        result.kernel, result.status, f"{1 / interval.estimate:.3f}",
        f"{1 / interval.high:.3f}" if interval.high else "", f"{1 / interval.low:.3f}" if interval.low else "",
        f"{verified / timing.time_ms:.1%}" if verified else "",
        f"{beyond.estimate * 1e3:+.1f}" if beyond else "",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
