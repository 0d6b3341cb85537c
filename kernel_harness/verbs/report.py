"""`report`: pages of what is stored."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernel_harness.verbs.arguments import ROOT, add_results

HELP = "an HTML page of the results; leaderboards in a README"
EXAMPLES = """
python harness.py report                     a page for every problem and device
python harness.py report matmul_tt           one problem's
python harness.py report --readme README.md  rewrites the leaderboards between its markers
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares them."""
    parser.add_argument("problem", nargs="*", metavar="PROBLEM", help="names or paths (default: all that have results)")
    parser.add_argument(
        "--readme", type=Path, metavar="FILE", help="rewrite the leaderboards between its markers instead"
    )
    add_results(parser)


def main(options: argparse.Namespace) -> int:
    """Raises UserError."""
    from kernel_harness import report

    return report.run(options, ROOT)
