"""The verb `profile`: shows the launches, memory traffic by line and registers of one call of a kernel."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from kernel_harness.cli.arguments import OK, add_define, add_device, add_kernel, add_problem, add_results
from kernel_harness.cli.fork_server import started_fork_server
from kernel_harness.core.terminal import terminal

HELP = "show launches, memory traffic by line and registers of one call of a kernel (on a GPU: by Nsight Compute)"
EXAMPLES = (
    ("profile matmul_tt tiled", "profile on the GPU if there is one, else under emulation"),
    ("profile matmul_tt tiled --shape M=1024", "profile at another size"),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of `profile`."""
    add_problem(parser, "problem")
    add_kernel(parser, "kernel", help="the name of a kernel of the problem, or the path of its file")
    add_device(parser)
    add_define(parser, "TILE=32")
    add_results(parser)


def main(parsed: argparse.Namespace) -> int:
    """Profiles one call of the kernel and prints tables of its launches, memory traffic and registers. Returns 0.

    Raises UserError if the kernel cannot be found or profiled.
    """
    with started_fork_server() as fork_server:
        from kernel_harness.cli.progress import Progress
        from kernel_harness.device import selection
        from kernel_harness.diagnostics.profile import profile
        from kernel_harness.problem import lookup, variants

        problem = lookup.problem(parsed.problem, Path.cwd())
        candidate = variants.only(lookup.kernel(parsed.kernel, problem.name, Path.cwd()), parsed.defines)
        device = selection.selected(parsed.device)
        timed = problem.sized(parsed.shape, emulated=device.emulated)
        reports = parsed.results / timed.name / device.label / "profiles"
        screen = terminal(sys.stdout)
        with Progress() as progress:
            tell = partial(progress.stage, candidate.name)
            text = profile(timed, candidate, device, reports, fork_server, screen, tell)
        print(text)
    return OK
