"""`sanitize`: a kernel's mistakes, by line."""

from __future__ import annotations

import argparse

from kernel_harness.paths import ROOT
from kernel_harness.sanitizer import TOOLS
from kernel_harness.verbs.arguments import add_device, add_kernel, add_problem

HELP = "a kernel's races, stray accesses and the like, by line"
EXAMPLES = """
python harness.py sanitize matmul_tt tiled                 on the GPU, or under emulation where there is none
python harness.py sanitize matmul_tt tiled --shape M=1,K=3  at one size
python harness.py sanitize matmul_tt tiled --tool racecheck  on a GPU, for races alone
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares them."""
    add_problem(parser, "problem")
    add_kernel(parser, "kernel", help="a kernel's name, or the path of its file")
    add_device(parser)
    parser.add_argument(
        "--tool", action="append", choices=TOOLS, help="on a GPU, a tool of compute-sanitizer to run; default: each"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of the inputs and of the order of threads")
    parser.add_argument("--json", action="store_true", help="print one JSON object per finding")


def main(options: argparse.Namespace) -> int:
    """Raises UserError. 0 where nothing is found, 1 where something is."""
    from kernel_harness.spawn import Template

    with Template() as template:
        from kernel_harness.sanitizer import sanitize

        return sanitize.run(options, ROOT, template)
