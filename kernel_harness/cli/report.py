"""The verb `report`: writes HTML pages from stored results, or updates the leaderboards in a README."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernel_harness.cli.arguments import OK, add_problem, add_results
from kernel_harness.core.paths import MEASURED, RESULTS

HELP = "write HTML pages from stored results, or update the leaderboards in a README"
EXAMPLES = (
    ("report matmul_tt", "write the pages of one problem"),
    ("report", "write the pages of every problem that has results"),
    ("report matmul_tt --devices", "write one page of all GPUs and machines that have results"),
    ("report --readme README.md", "replace the leaderboards between the file's markers"),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of `report`."""
    add_problem(
        parser, "problem", nargs="*", help="the name of a problem or the path of its file (default: all with results)"
    )
    parser.add_argument(
        "--readme", type=Path, metavar="FILE",
        help="write no pages; replace each leaderboard in this file between a line "
        "<!-- leaderboard PROBLEM/DEVICE --> and a line <!-- end -->; "
        "the results come from --results, by default from benchmarks/measured/results",
    )  # fmt: skip
    parser.add_argument(
        "--devices", action="store_true",
        help="write one page that shows the results of all GPUs and machines side by side; another machine's folder "
        "<problem>/<device> can be copied beside this machine's under another name",
    )  # fmt: skip
    add_results(parser)
    parser.set_defaults(results=None)


def main(parsed: argparse.Namespace) -> int:
    """Writes HTML pages of stored results and prints their paths, or updates the leaderboards in a README. Returns 0.

    Raises UserError if there are no results, or if a marker line in the README is wrong.
    """
    from kernel_harness import report

    if parsed.readme is not None:
        names = report.rewrite_readme(parsed.readme, parsed.results or MEASURED, Path.cwd())
        print(f"{parsed.readme}: {', '.join(names)}")
        return OK
    write = report.device_pages if parsed.devices else report.pages
    for path in write(parsed.problem, parsed.results or RESULTS, Path.cwd()):
        print(path)
    return OK
