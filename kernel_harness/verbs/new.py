"""`new`: start a kernel from a file that builds and passes."""

from __future__ import annotations

import argparse

from kernel_harness.paths import ROOT, shown
from kernel_harness.verbs.arguments import OK, add_problem

HELP = "start a kernel: writes a file that builds and passes as it stands"
EXAMPLES = """
python harness.py new matmul_tt mine       kernels/matmul_tt/mine.py
python harness.py new matmul_tt mine --cu  kernels/matmul_tt/mine.cu, plain CUDA
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares them."""
    add_problem(parser, "problem")
    parser.add_argument("name", metavar="NAME", help="the kernel's name")
    parser.add_argument("--cu", action="store_true", help="a plain .cu file instead of Python around a CUDA string")


def main(options: argparse.Namespace) -> int:
    """Raises UserError."""
    import shlex

    from kernel_harness import find
    from kernel_harness.new import new

    path = new(find.problem(options.problem, ROOT), options.name, ROOT, cu=options.cu)
    command = ["python", "harness.py", "--problem", options.problem, "--kernel", path.stem]
    print(f"{shown(path)} is written. It builds and passes as it stands; judge it, and again at each save, with\n")
    print(f"  {shlex.join(command)}\n  {shlex.join([*command, '--watch'])}")
    return OK
