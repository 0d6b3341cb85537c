"""`list`: problems, their kernels, and what became of each the last time."""

from __future__ import annotations

import argparse

from kernel_harness.paths import ROOT
from kernel_harness.verbs.arguments import OK, add_problem, add_results

HELP = "problems, their kernels, and each one's last result"
EXAMPLES = """
python harness.py list                      everything
python harness.py list --problem matmul_tt  one problem
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares them."""
    add_problem(parser)
    add_results(parser)


def main(options: argparse.Namespace) -> int:
    """Raises UserError."""
    import sys

    from kernel_harness import find, listing
    from kernel_harness.terminal import terminal

    names = [options.problem] if options.problem else find.problem_names(ROOT)
    for name in names:
        print(listing.text(find.problem(name, ROOT), ROOT, options.results, terminal(sys.stdout)))
    return OK
