"""The verb `list`: shows the kernels of each problem, each with its last result on each device."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kernel_harness.cli.arguments import OK, add_problem, add_results
from kernel_harness.core.terminal import terminal

HELP = "list problems, their kernels, and each kernel's last result"
EXAMPLES = (("list", "list every problem"), ("list matmul_tt", "list one problem"))


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of `list`."""
    only = "list only this problem: its name, or the path of its file (default: all)"
    add_problem(parser, "named_problem", nargs="?", help=only)
    add_problem(parser, help="the same as the argument PROBLEM")
    add_results(parser)


def main(parsed: argparse.Namespace) -> int:
    """Prints the problems with their kernels and returns 0.

    A problem file that cannot be used is listed with the reason. Raises UserError if the user names such a problem, or
    an unknown one.
    """
    from kernel_harness.problem import lookup
    from kernel_harness.problem.errors import ProblemError
    from kernel_harness.results import overview

    chosen = parsed.problem or parsed.named_problem
    for name in [chosen] if chosen else lookup.problem_names(Path.cwd()):
        try:
            problem = lookup.problem(name, Path.cwd())
        except ProblemError as error:
            if chosen:
                raise
            print(terminal(sys.stdout).wrapped(f"{name}  cannot be used: {error}"))
            continue
        print(overview.text(problem, Path.cwd(), parsed.results, terminal(sys.stdout)))
    return OK
