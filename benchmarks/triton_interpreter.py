"""Measures how much faster Triton kernels run under emulation than in Triton's own interpreter.

    python benchmarks/triton_interpreter.py [--write]

Two processes run the same kernels at the same sizes: one in Triton's interpreter as Triton ships it, the other as the
emulated device does. Run it on an idle machine. With --write, the table in docs/triton.md is replaced. The exit code
is 1 if a kernel is less than 20 times as fast, or if results differ by more than the rounding of tf32.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

GOAL = 20.0
REPEATS = 5  # of the faster way; the other takes seconds


def main() -> int:
    """Prints the table. Returns 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="replace the table in docs/triton.md")
    parser.add_argument("--measure", metavar="WAY", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measured(arguments.measure)))
        return 0
    import pages
    from tabulate import tabulate

    before, after = (_in_a_process(way) for way in ("interpreter", "emulation"))
    rows, missed = [], False
    for name, (_, once_s, before_sum) in before.items():
        first_s, again_s, after_sum = after[name]
        agrees = abs(after_sum - before_sum) <= 1e-3 * abs(before_sum)
        missed |= once_s / again_s < GOAL or not agrees
        rows.append([name, f"{once_s:.3g} s", f"{again_s:.3g} s", f"{once_s / again_s:.0f}", f"{first_s:.2g} s"])
    headers = ["kernel", "Triton's interpreter", "emulation", "times as fast", "first launch, with the compiler"]
    table = tabulate(rows, headers, tablefmt="github", disable_numparse=True, colalign=("left", *["right"] * 4))
    print(table)
    if arguments.write:
        pages.write("triton.md", "triton interpreter", table)
    return int(missed)


def measured(way: str) -> dict[str, tuple[float, float, float]]:
    """Returns, for each kernel, the seconds of the first and of a further launch, and the sum of absolute outputs.

    `way` is "interpreter" or "emulation". The interpreter needs no further launch, as it compiles nothing.
    """
    device = "cpu"
    if way == "emulation":
        from cuda_on_cpu.emulator import shared_parts, torch_cuda, triton_interpreter

        shared_parts.prepare()
        torch_cuda.install(shared_parts.runtime())
        triton_interpreter.install()
        device = "cuda"
    import triton_kernels

    found = {}
    for name, (launch, output) in triton_kernels.launches(device).items():
        first = _seconds(launch)
        again = min(_seconds(launch) for _ in range(REPEATS)) if way == "emulation" else first
        found[name] = (first, again, float(output.cpu().double().abs().sum()))
    return found


def _seconds(launch: object) -> float:
    start = time.perf_counter()
    launch()
    return time.perf_counter() - start


def _in_a_process(way: str) -> dict[str, tuple[float, float, float]]:
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "TRITON_CACHE_DIR": cache, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        if way == "interpreter":
            environment["TRITON_INTERPRET"] = "1"
        words = [sys.executable, __file__, "--measure", way]
        printed = subprocess.run(words, env=environment, stdout=subprocess.PIPE, check=True, text=True).stdout
    return json.loads(printed.splitlines()[-1])


if __name__ == "__main__":
    sys.exit(main())
