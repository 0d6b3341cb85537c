"""`compare`: what became faster or slower."""

from __future__ import annotations

import argparse

from kernel_harness.verbs.arguments import (
    ROOT,
    add_device,
    add_kernel,
    add_problem,
    add_results,
    count,
    percent,
    positive,
)

HELP = "what became faster or slower: two stored runs, two files, or two versions of a kernel, measured together"
EXAMPLES = """
python harness.py compare --problem matmul_tt previous latest                  the last two runs
python harness.py compare 20261120-115954 latest                               a run by the beginning of its id
python harness.py compare before/runs.jsonl after/runs.jsonl                   two files
python harness.py compare --problem matmul_tt --kernel tiled HEAD~1            a revision against the file as it is
python harness.py compare --problem matmul_tt kernels/matmul_tt/naive.py m.cu  two kernels
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares them."""
    # What a run may be asked for and a comparison need not be.
    parser.set_defaults(
        timeout=60.0, build_timeout=300.0, jobs=None, seed=None, case=None, precision=None, quick=False,
        baseline="torch",
    )  # fmt: skip
    parser.add_argument(
        "a", metavar="A", help="a run's id, a runs.jsonl or its folder, a git revision or a kernel file"
    )
    parser.add_argument(
        "b", metavar="B", nargs="?", help="the same (default: the latest run, or the kernel as it is now)"
    )
    add_problem(parser)
    add_kernel(parser, "--kernel", action="append", default=[], help="only this one; repeatable")
    parser.add_argument("--force", action="store_true", help="even if devices or shapes differ")
    parser.add_argument(
        "--fail-over", type=percent, default=0.0, metavar="3%%", help="let B be this much slower before exiting with 3"
    )
    add_device(parser)
    parser.add_argument("--budget", type=positive, metavar="S", help="seconds of timing; for what is measured")
    parser.add_argument("--rounds", type=count, metavar="N", help="exactly this many rounds; for what is measured")
    add_results(parser)


def main(options: argparse.Namespace) -> int:
    """Raises UserError. 3 where B is slower or broken."""
    from kernel_harness import versus

    return versus.run(options, ROOT)
