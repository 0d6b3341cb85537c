"""`profile`: what one call of a kernel does."""

from __future__ import annotations

import argparse

from kernel_harness.paths import ROOT
from kernel_harness.verbs.arguments import OK, add_device, add_kernel, add_problem, add_results

HELP = "what one call of a kernel does: launches, bytes, registers, occupancy; on a GPU by Nsight Compute"
EXAMPLES = """
python harness.py profile matmul_tt tiled                 on the GPU, or counted where there is none
python harness.py profile matmul_tt tiled --shape M=1024  at another size
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares them."""
    add_problem(parser, "problem")
    add_kernel(parser, "kernel", help="a kernel's name, or the path of its file")
    add_device(parser)
    add_results(parser)


def main(options: argparse.Namespace) -> int:
    """Raises UserError."""
    from kernel_harness.spawn import Template

    with Template() as template:
        from kernel_harness.profile import profile

        print(profile(options, ROOT, template))
    return OK
