"""The verb `new`: writes a simple kernel file that builds and passes, to start from."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from kernel_harness.cli.arguments import OK, add_problem
from kernel_harness.core.paths import command, shown
from kernel_harness.core.terminal import shown_meanwhile

HELP = "write a simple kernel file that builds and passes, to start from"
EXAMPLES = (
    ("new matmul_tt mine", "write kernels/matmul_tt/mine.py"),
    ("new matmul_tt mine --cu", "write kernels/matmul_tt/mine.cu in plain CUDA"),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of `new`."""
    add_problem(parser, "problem")
    parser.add_argument("name", metavar="NAME", help="the name of the new kernel: its file name without suffix")
    parser.add_argument(
        "--cu", action="store_true",
        help="write a .cu file of plain CUDA instead of a Python file that holds CUDA in a string",
    )  # fmt: skip


def main(parsed: argparse.Namespace) -> int:
    """Writes the kernel file below the current folder and prints how to judge it. Returns 0.

    Raises UserError if the problem does not exist or cannot be used, or if the kernel file cannot be written.
    """
    with shown_meanwhile("harness  trying the reference"):
        from kernel_harness.problem import lookup
        from kernel_harness.scaffold import new

        path = new(lookup.problem(parsed.problem, Path.cwd()), parsed.name, Path.cwd(), cu=parsed.cu)
    judge = shlex.join([*command(), "--problem", parsed.problem, "--kernel", path.stem])
    print(f"Wrote {shown(path)}. It should build and pass as it is. To judge it, once or at each save:\n")
    print(f"  {judge}\n  {judge} --watch")
    return OK
