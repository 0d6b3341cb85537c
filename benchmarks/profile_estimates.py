"""Compares the times that `profile --target h200` estimates with those measured on an H200, and publishes the table.

    python benchmarks/profile_estimates.py [--write] [--kernel NAME ...]

Each shipped kernel of `matmul_tt` and `matmul_tt_relu` with a time in `measured/results`, or in the table of
docs/ladder.md, is profiled at full size, where a few blocks of each launch run on the emulated device. Kernels that
call cuBLAS are left out, because the estimate has no work of libraries, and so are kernels that the emulator cannot
run. The table has for each kernel the range, its middle, and the middle divided by the measured time. `--write` puts
the table into docs/profile.md.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import pages
from small_estimates import FACTOR, rank_correlation

from kernel_harness.diagnostics import profile
from kernel_harness.diagnostics.profile import CannotProfile, targets, timing_table
from kernel_harness.diagnostics.profile.estimate import Range
from kernel_harness.problem import lookup
from kernel_harness.sandbox.fork_server import ForkServer

BENCHMARKS = Path(__file__).resolve().parent
LADDER = ROOT / "docs" / "ladder.md"
TARGET = targets.named("h200")


@dataclass(frozen=True)
class Row:
    """One kernel: its estimated and its measured time."""

    problem: str
    kernel: str
    time: Range
    measured_ms: float

    @property
    def ratio(self) -> float:
        """Returns the middle of the estimate divided by the measured time."""
        return 1e3 * self.time.middle_s / self.measured_ms


def measured() -> dict[tuple[str, str], float]:
    """Returns the measured times of kernels in milliseconds, by problem and kernel."""
    found = {}
    for path in sorted((BENCHMARKS / "measured" / "results").glob("*/nvidia-h200/runs.jsonl")):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if record["kind"] == "candidate" and record["timing"]:
                found[path.parts[-3], record["kernel"]] = float(record["timing"]["time"]["estimate"])
    for kernel, text in re.findall(r"^\|[^|]*\| `(\w+)` \|[^|]*\| ([\d.]+) \|", LADDER.read_text(), re.MULTILINE):
        found.setdefault(("matmul_tt", kernel), float(text))
    return found


def rows(only: list[str]) -> list[Row]:
    """Profiles the kernels. Returns their rows, the fastest measured first."""
    found = []
    with ForkServer() as fork_server:
        for (name, kernel), measured_ms in measured().items():
            if only and kernel not in only:
                continue
            problem = lookup.problem(name, ROOT).sized(None, emulated=True)
            candidate = lookup.kernel(kernel, name, ROOT)
            if re.search(r"cublas[A-Z]|at::(?:mm|matmul)\b", candidate.source):
                continue
            began = time.monotonic()
            try:
                _, assembled, recorded = profile.counted(problem, candidate, fork_server, lambda text: None, TARGET)
            except CannotProfile as failure:
                print(f"{kernel}: {str(failure).splitlines()[0]}", file=sys.stderr)
                continue
            whole = timing_table.total(profile.estimates_of(recorded, assembled, TARGET))
            found.append(Row(name, kernel, whole, measured_ms))
            print(
                f"{kernel}: {time.monotonic() - began:.0f} s, ratio {found[-1].ratio:.2f}", file=sys.stderr, flush=True
            )
    return sorted(found, key=lambda row: row.measured_ms)


def table(found: list[Row]) -> str:
    """Returns the Markdown table, and the sentence with the correlation and the errors."""
    lines = [
        "| problem | kernel | estimate (ms) | middle (ms) | measured (ms) | middle / measured |",
        "|---|---|---|---|---|---|",
    ]
    for row in found:
        low, middle, high = (1e3 * s for s in (row.time.low_s, row.time.middle_s, row.time.high_s))
        lines.append(
            f"| `{row.problem}` | `{row.kernel}` | {low:.3g} to {high:.3g} | {middle:.3g} | {row.measured_ms:.4g} | "
            f"{row.ratio:.2f} |"
        )
    worst = max(found, key=lambda row: max(row.ratio, 1 / row.ratio))
    near = sum(1 / FACTOR <= row.ratio <= FACTOR for row in found)
    inside = sum(row.time.low_s <= row.measured_ms / 1e3 <= row.time.high_s for row in found)
    spearman = rank_correlation([row.time.middle_s for row in found], [row.measured_ms for row in found])
    summary = (
        f"Of {len(found)} kernels, {inside} were measured within the range, and for {near} the middle is within a\n"
        f"factor of {FACTOR:g} of the measured time. The rank correlation (Spearman) is {spearman:.2f}. The worst is\n"
        f"`{worst.kernel}`, with {worst.ratio:.2f} times the measured time."
    )
    return "\n".join([*lines, "", summary])


def main() -> None:
    """Prints the table, or writes it into docs/profile.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the table into docs/profile.md")
    parser.add_argument("--kernel", action="append", default=[], help="compare only this kernel")
    options = parser.parse_args()
    text = table(rows(options.kernel))
    print(text)
    if options.write:
        pages.write("profile.md", "profile estimates", text)


if __name__ == "__main__":
    main()
