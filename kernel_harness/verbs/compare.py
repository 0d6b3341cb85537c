"""`compare`: what became faster or slower between two runs, two files of results, or two versions of a kernel."""

from __future__ import annotations

import argparse

from kernel_harness.paths import ROOT
from kernel_harness.verbs.arguments import add_device, add_kernel, add_problem, add_results, count, positive

HELP = "what became faster or slower between two runs or two versions of a kernel"
EXAMPLES = """
python harness.py compare --problem matmul_tt previous latest          the last two runs
python harness.py compare 20261120-115954 latest                       a run by the beginning of its name
python harness.py compare before/runs.jsonl after/runs.jsonl           results from elsewhere
python harness.py compare --problem matmul_tt --kernel tiled HEAD~1    a revision against the file as it is now
python harness.py compare --problem matmul_tt one.py other.cu          two files
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares them."""
    # What a run may be asked for and a comparison need not be.
    parser.set_defaults(
        timeout=60.0, build_timeout=300.0, jobs=None, seed=None, case=None, precision=None, quick=False,
        baseline="torch",
    )  # fmt: skip
    parser.add_argument("a", metavar="A", help="a run, a runs.jsonl or its folder, a git revision or a kernel file")
    parser.add_argument("b", metavar="B", nargs="?", help="the same (default: the latest run; the kernel as it is now)")
    add_problem(parser)
    add_kernel(parser, "--kernel", action="append", default=[], help="this one only; repeatable")
    parser.add_argument("--force", action="store_true", help="even if devices or shapes differ")
    parser.add_argument(
        "--fail-over", type=_percent, default=0.0, metavar="3%", help="let B be this much slower before exiting with 3"
    )
    add_device(parser)
    parser.add_argument("--budget", type=positive, metavar="S", help="seconds of timing two versions")
    parser.add_argument("--rounds", type=count, metavar="N", help="exactly this many rounds of timing two versions")
    add_results(parser)


def main(options: argparse.Namespace) -> int:
    """Raises UserError."""
    from kernel_harness import compare

    return compare.run(options, ROOT)


def _percent(text: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage like 3%")
    return value
