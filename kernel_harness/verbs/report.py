"""`report`: an HTML page of the results, or the leaderboards in a README."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernel_harness.paths import ROOT
from kernel_harness.verbs.arguments import add_problem, add_results

HELP = "an HTML page of the results; the leaderboards in a README"
EXAMPLES = """
python harness.py report matmul_tt           the pages of one problem
python harness.py report                     of every problem that has results
python harness.py report --readme README.md  the tables between its markers
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares them."""
    add_problem(parser, "problem", nargs="*")
    parser.add_argument("--readme", type=Path, metavar="FILE", help="rewrite the leaderboards in this file instead")
    add_results(parser)


def main(options: argparse.Namespace) -> int:
    """Raises UserError."""
    from kernel_harness import report

    return report.run(options, ROOT)
