"""The verb `sanitize`: finds races, out-of-bounds accesses and similar mistakes in a kernel, and their lines."""

from __future__ import annotations

import argparse
import json
import secrets
from dataclasses import asdict
from functools import partial
from pathlib import Path

from kernel_harness.cli.arguments import OK, SOME_FAILED, add_define, add_device, add_kernel, add_problem
from kernel_harness.cli.fork_server import started_fork_server
from kernel_harness.diagnostics.sanitizer import TOOLS

HELP = "find races, out-of-bounds accesses and similar mistakes in a kernel, each with its line"
EXAMPLES = (
    ("sanitize matmul_tt tiled", "check on the GPU if there is one, else under emulation"),
    ("sanitize matmul_tt tiled --shape M=1,K=3", "check at this size only"),
    ("sanitize matmul_tt tiled --tool racecheck", "on a GPU, look for races only"),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of `sanitize`."""
    add_problem(parser, "problem")
    add_kernel(parser, "kernel", help="the name of a kernel of the problem, or the path of its file")
    add_device(parser)
    add_define(parser, "TILE=32")
    parser.add_argument(
        "--tool", action="append", choices=TOOLS,
        help="on a GPU: run this tool of compute-sanitizer; may be given several times (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=int, metavar="N", help="the seed of the inputs and of the order of threads (default: random)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per finding instead of text")


def main(parsed: argparse.Namespace) -> int:
    """Prints the mistakes that were found in the kernel. Returns 0 if there are none, else 1.

    Raises UserError if the kernel cannot be found or run.
    """
    with started_fork_server() as fork_server:
        from kernel_harness.cli.progress import Progress
        from kernel_harness.device import selection
        from kernel_harness.diagnostics.sanitizer import sanitize
        from kernel_harness.problem import lookup, variants

        problem = lookup.problem(parsed.problem, Path.cwd())
        candidate = variants.only(lookup.kernel(parsed.kernel, problem.name, Path.cwd()), parsed.defines)
        device = selection.selected(parsed.device).name
        seed = parsed.seed if parsed.seed is not None else secrets.randbits(32)
        request = sanitize.Request(problem, candidate, device, parsed.shape, seed, tuple(parsed.tool or ()))
        with Progress() as progress:
            report = sanitize.run(request, fork_server, partial(progress.stage, candidate.name))
    if parsed.json:
        for finding in report.findings:
            print(json.dumps({**asdict(finding), "sentence": finding.sentence}))
    else:
        print(report.text(candidate.name))
    return SOME_FAILED if report.findings else OK
