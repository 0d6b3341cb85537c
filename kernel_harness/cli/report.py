"""The verb `report`: writes HTML pages from stored results, or updates the leaderboards in a README."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from kernel_harness.cli.arguments import OK, add_problem, add_results
from kernel_harness.core.paths import MEASURED, RESULTS

HELP = "write HTML pages from stored results, or update the leaderboards in a README"
EXAMPLES = (
    ("report matmul_tt", "write the pages of one problem"),
    ("report", "write the pages of every problem that has results"),
    ("report --readme README.md", "replace the leaderboards between the file's markers"),
)


@dataclass(frozen=True)
class Options:
    """The options of the verb `report`.

    If `readme` is None, HTML pages of the problems in `problems` are written; if `problems` is empty, of every problem
    that has results. Otherwise the leaderboards in the file `readme` are updated, no page is written, and `problems` is
    ignored. `results` is the folder of stored results. If `results` is None, the HTML pages show the results in
    ./results, and the file `readme` shows the measured results that are a part of the harness.
    """

    problems: tuple[str, ...]
    readme: Path | None
    results: Path | None


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
    add_results(parser)
    parser.set_defaults(results=None)


def main(parsed: argparse.Namespace) -> int:
    """Writes HTML pages of stored results and prints their paths, or updates the leaderboards in a README. Returns 0.

    Raises UserError if there are no results, or if a marker line in the README is wrong.
    """
    from kernel_harness import report

    options = Options(tuple(parsed.problem), parsed.readme, parsed.results)
    if options.readme is not None:
        names = report.rewrite_readme(options.readme, options.results or MEASURED, Path.cwd())
        print(f"{options.readme}: {', '.join(names)}")
        return OK
    for path in report.pages(options.problems, options.results or RESULTS, Path.cwd()):
        print(path)
    return OK
