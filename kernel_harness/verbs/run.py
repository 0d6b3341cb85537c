"""`run`, the default verb: build, check and time kernels."""

from __future__ import annotations

import argparse

from kernel_harness.paths import ROOT
from kernel_harness.verbs.arguments import (
    OK,
    SOME_FAILED,
    add_device,
    add_kernel,
    add_problem,
    add_results,
    count,
    positive,
)

HELP = "build, check and time kernels (the default)"
EXAMPLES = """
python harness.py --problem matmul_tt                          judge every kernel of a problem
python harness.py --problem matmul_tt --kernel 'tiled*'        judge some of them
python harness.py --problem matmul_tt --kernel ~/mine.cu       judge a file from anywhere
python harness.py --problem matmul_tt --kernel mine --watch    judge it again whenever it is saved
python harness.py --problem matmul_tt --shape M=512,K=64,N=96  at another size
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares them."""
    add_problem(parser, required=True)
    add_kernel(parser, "--kernel", action="append", default=[], help="a name, glob or file; repeatable")
    add_device(parser)
    parser.add_argument("--precision", metavar="FORMAT", help="also allow tf32, float16 or bfloat16 arithmetic")
    parser.add_argument("--timeout", type=positive, default=60.0, metavar="S", help="seconds per call (default 60)")
    parser.add_argument(
        "--build-timeout", type=positive, default=300.0, metavar="S", help="seconds per build (default 300)"
    )
    parser.add_argument(
        "--budget", type=positive, metavar="S", help="seconds of timing (default 2 emulated, 60 on a GPU)"
    )
    parser.add_argument("--rounds", type=count, metavar="N", help="exactly this many timed rounds")
    parser.add_argument(
        "--baseline", default="torch", metavar="NAME",
        help="what speedups are against: torch, torch.compile, torch.compile:max-autotune or a kernel",
    )  # fmt: skip
    parser.add_argument("--jobs", type=count, metavar="N", help="builds side by side (default: by cores and memory)")
    parser.add_argument("--seed", type=int, metavar="N", help="the secret that inputs are drawn with (default: random)")
    parser.add_argument("--case", metavar="SHAPE:DISTRIBUTION", help="check this one case, time nothing")
    add_results(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object per result instead of the table")
    parser.add_argument("--watch", action="store_true", help="stay, and judge each kernel again when its file is saved")
    parser.add_argument("--strict", action="store_true", help="emulated: nvcc has to compile each kernel, too")
    parser.add_argument("--quick", action="store_true", help="fewer shapes and a quarter of the timing")


def main(options: argparse.Namespace) -> int:
    """Raises UserError, KeyboardInterrupt."""
    # torch takes two seconds to import: the process that workers come from imports it meanwhile.
    from kernel_harness.spawn import Template

    with Template() as template:
        from kernel_harness import run

        results = run.run(options, ROOT, template)
    return OK if all(r.passed for r in results) else SOME_FAILED
