"""The verb `run` with `--server`: a server judges the kernels, and the table is printed here. Nothing is stored."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kernel_harness.cli.arguments import OK, SOME_FAILED
from kernel_harness.cli.run import explain, is_failure, print_fastest
from kernel_harness.core.errors import UserError
from kernel_harness.core.terminal import terminal
from kernel_harness.results.record import Result

# The server decides these, or they need a run on this machine.
_LOCAL = (
    "shapes", "time_shapes", "require_own_kernels", "rounds", "jobs", "seed", "case", "build_s", "junit", "markdown",
    "bundle", "sign", "watch", "strict", "device", "results",
)  # fmt: skip


def main(parsed: argparse.Namespace) -> int:
    """Has the kernels judged by the server `parsed.server`, and prints the table and the failures.

    Returns the exit code, as `run` does. Raises UserError for an option that a server does not take, for what it
    refuses, and if it cannot be reached.
    """
    from kernel_harness.cli.progress import Progress
    from kernel_harness.client import Client
    from kernel_harness.problem import lookup, variants

    _check(parsed)
    name = Path(parsed.problem).stem
    candidates = variants.of(lookup.kernels(parsed.kernels, name, Path.cwd()), parsed.defines)
    client = Client(
        parsed.server, precision=parsed.precision, timeout_s=parsed.call_s, budget_s=parsed.budget_s,
        baseline=parsed.baseline, quick=parsed.quick, sanitize=parsed.sanitize,
    )  # fmt: skip
    client.check()
    progress = Progress(as_json=parsed.json)
    try:
        with progress:
            for candidate in candidates:
                progress.stage(candidate.name, "at the server")
            for index, result in client.evaluate_many((parsed.problem, candidate) for candidate in candidates):
                progress.settled(replace(result, kernel=candidates[index].name))
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the server goes on; the same command shows the verdicts later.") from None
    finally:
        if progress.finished:
            _print(name, progress.finished, parsed)
    asked_for = lookup.asked_for(parsed.kernels, candidates)
    return SOME_FAILED if any(is_failure(result, asked_for) for result in progress.finished) else OK


def _check(parsed: argparse.Namespace) -> None:
    """Raises UserError for an option that only a run on this machine takes."""
    from kernel_harness.cli import run

    parser = argparse.ArgumentParser()
    run.arguments(parser)
    options = {action.dest: action.option_strings[0] for action in parser._actions if action.option_strings}
    given = [options[dest] for dest in _LOCAL if getattr(parsed, dest) != parser.get_default(dest)]
    if given:
        raise UserError(f"{given[0]} is not possible with --server: the server chooses sizes, seeds, devices and rules")


def _print(problem: str, finished: Sequence[Result], parsed: argparse.Namespace) -> None:
    """Prints the table, or with `--json` only what explains it, in the form of a local run."""
    from kernel_harness.results import leaderboard

    out = sys.stderr if parsed.json else sys.stdout
    at = next(((result.shape, result.further_shapes) for result in finished if result.shape), ({}, ()))
    results = [replace(result, shape=at[0]) for result in finished]
    if not parsed.json:
        rows = leaderboard.rank(results, *at)
        print(leaderboard.heading(problem, results, *at), end="\n\n")
        print(leaderboard.render(rows, terminal=terminal(out), memory=parsed.verbose > 0))
    explain(problem, results, out, lambda _: None, with_output=parsed.verbose > 0)
    print_fastest(results, out)
