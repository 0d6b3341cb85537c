"""The verb `report`: stored results -> one page per problem and device, or the leaderboards in a README."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernel_harness import find, leaderboard, readme
from kernel_harness.errors import UserError
from kernel_harness.problem import Problem
from kernel_harness.results import Journal
from kernel_harness.run import problem_on


def run(options: argparse.Namespace, root: Path) -> int:
    """Writes what was asked for and prints where it is. Raises UserError where there is nothing to write from."""
    if options.readme is not None:
        names = readme.rewrite(options.readme, lambda name, device: _table(options.results, name, device, root))
        print(f"{options.readme}: {', '.join(names)}")
    return 0


def _table(results: Path, name: str, device: str, root: Path) -> str:
    problem = _default(find.problem(name, root), device)
    records = Journal(results / problem.name / device).read()
    table = leaderboard.rank(records, problem.shape)
    if table.empty:
        raise UserError(f"no results of {name} on {device} in {results}; a run there makes them")
    return leaderboard.render(table, "github")


def _default(problem: Problem, device: str) -> Problem:
    """At the shape that the device's main leaderboard is of."""
    return problem_on(problem, device == leaderboard.EMULATED)
