"""The verb `compare`: shows what became faster or slower between two runs, two suites or two versions of a kernel."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_harness.cli.arguments import (
    OK,
    REGRESSED,
    SOME_FAILED,
    add_device,
    add_files,
    add_kernel,
    add_problem,
    add_results,
    count,
    positive,
    problem_names,
    run_names,
)
from kernel_harness.cli.fork_server import started_fork_server
from kernel_harness.core.errors import UserError

if TYPE_CHECKING:
    from kernel_harness.cli.ci import TestCase
    from kernel_harness.problem.candidate import Candidate
    from kernel_harness.results.comparison import Outcome, Row
    from kernel_harness.results.record import Result
    from kernel_harness.suite.comparison import StoredSuite

HELP = "show what became faster or slower between two runs, two suites or two versions of a kernel"
EXAMPLES = (
    ("compare --problem matmul_tt previous latest", "compare the last two runs of a problem"),
    ("compare 20261120-115954 latest", "compare the run whose id begins so with the last run"),
    ("compare before/runs.jsonl after/runs.jsonl", "compare two files of results"),
    ("compare mine yours", "compare two suites by their names"),
    ("compare --problem matmul_tt --kernel tiled HEAD~1", "time a kernel at a git revision against its file now"),
    ("compare matmul_tt naive tiled", "time two kernels against each other"),
    ("compare --problem matmul_tt one.py other.cu", "time two kernel files against each other"),
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of `compare`."""
    a = parser.add_argument(
        "a", metavar="A",
        help="a run: `latest`, `previous`, the beginning of its id, a runs.jsonl or its folder; "
        "or a version of a kernel: a git revision or a kernel file; or a suite: its name or folder",
    )  # fmt: skip
    b = parser.add_argument(
        "b", metavar="B", nargs="?",
        help="what to compare A with: a run or a version, like A "
        "(default: the latest run if A is a run, else the kernel's file as it is now)",
    )  # fmt: skip
    a.completer = b.completer = run_names  # type: ignore[attr-defined]
    parser.add_argument("c", metavar="C", nargs="?", help=argparse.SUPPRESS)
    add_problem(parser, help="the problem of the runs or kernels; it may also be the first word: PROBLEM A B")
    add_kernel(
        parser, "--kernel", dest="kernels", action="append", default=[],
        help="compare this kernel only; may be given several times",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="compare runs even if their devices or shapes differ")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    add_files(parser)
    parser.add_argument(
        "--fail-over", type=_percent, default=0.0, metavar="3%",
        help="exit with code 3 only if a kernel broke or is slower in B by more than this (default: 0%%)",
    )  # fmt: skip
    add_device(parser)
    parser.add_argument(
        "--budget", type=positive, metavar="S", dest="budget_s",
        help="for versions of a kernel: the most seconds to spend on timing",
    )  # fmt: skip
    parser.add_argument(
        "--rounds", type=count, metavar="N", help="for versions of a kernel: time exactly N rounds, without --budget"
    )
    add_results(parser)


def main(parsed: argparse.Namespace) -> int:
    """Compares side A with side B, two runs, two suites or two versions of a kernel, and prints the comparison.

    Returns 3 if a kernel passes on side A and fails on side B, or is slower on side B by more than `--fail-over`, or if
    a figure of a suite is certainly lower on side B. Otherwise returns 0 for two suites. For two runs or versions, it
    then returns 1 if a kernel fails on both sides, and 0 if none does.
    Raises UserError if the two sides cannot be compared.
    """
    from kernel_harness.cli import ci
    from kernel_harness.results import comparison
    from kernel_harness.suite.comparison import both_suites

    _take_problem(parsed)
    if suites := both_suites(parsed.a, parsed.b, parsed.results):
        return _compare_suites(*suites, parsed)
    outcome = _outcome(parsed)
    print(comparison.to_json(outcome, parsed.fail_over) if parsed.json else comparison.render(outcome))
    worse = outcome.regressions(parsed.fail_over)
    if parsed.junit or parsed.markdown:
        ci.write(parsed, [_test_case(row, outcome, worse) for row in outcome.rows], comparison.to_markdown(outcome))
    if worse:
        limit = f" by more than {parsed.fail_over:g}%" if parsed.fail_over else ""
        print(f"slower{limit} or broken: {', '.join(row.kernel for row in worse)}", file=sys.stderr)
        return REGRESSED
    return SOME_FAILED if any(row.change is comparison.Change.FAILED for row in outcome.rows) else OK


def _take_problem(parsed: argparse.Namespace) -> None:
    """Takes the first word for the problem if it is the name of one, --problem is missing, and other words follow.

    Raises UserError for three words of which the first is no problem.
    """
    if parsed.problem is None and parsed.b is not None and parsed.a in problem_names():
        parsed.problem, parsed.a, parsed.b, parsed.c = parsed.a, parsed.b, parsed.c, None
    if parsed.c is not None:
        raise UserError(f"compare takes two sides, and {parsed.c!r} is a third one; there is no problem {parsed.a!r}")


def _test_case(row: Row, outcome: Outcome, worse: Sequence[Row]) -> TestCase:
    from kernel_harness.cli.ci import TestCase
    from kernel_harness.problem.problem import shape_text
    from kernel_harness.results.comparison import Change

    name = ", ".join(filter(None, [outcome.b.problem, shape_text(dict(row.shape))])) or "compare"
    if row not in worse and row.change is not Change.FAILED:
        return TestCase(name, row.kernel, outcome.after(row))
    ratio = f"A / B is {row.ratio.estimate:#.4g}x" if row.ratio else ""
    message = ", ".join(
        filter(None, [f"{row.change.value} in B" if row in worse else row.change.value, row.note, ratio])
    )
    return TestCase(name, row.kernel, outcome.after(row), row.change.value, message)


def _compare_suites(a: StoredSuite, b: StoredSuite, parsed: argparse.Namespace) -> int:
    from kernel_harness.suite import comparison

    if parsed.json or parsed.junit or parsed.markdown:
        raise UserError(
            "--json, --junit and --markdown are for runs and versions of a kernel; leave them out for suites"
        )
    outcome = comparison.compare(a, b, force=parsed.force)
    print(comparison.render(outcome))
    worse = outcome.regressions(parsed.fail_over)
    if worse:
        print(f"worse: {', '.join(worse)}", file=sys.stderr)
    return REGRESSED if worse else OK


def _percent(text: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage like 3%")
    return value


def _outcome(parsed: argparse.Namespace) -> Outcome:
    """Compares the two sides that `parsed.a` and `parsed.b` name, and returns the outcome.

    If both name stored results, these results are compared. If neither names stored results, both must be versions of
    a kernel, which are measured now. Raises UserError if only one of the two names stored results.
    """
    from kernel_harness.problem.version import WORKING_TREE
    from kernel_harness.results import comparison, stored_runs

    a = stored_runs.side_named(parsed.a, parsed.results, parsed.problem, parsed.kernels)
    word = parsed.b or (WORKING_TREE if a is None else stored_runs.LATEST)
    b = stored_runs.side_named(word, parsed.results, parsed.problem, parsed.kernels)
    if a is not None and b is not None:
        return comparison.compare(a, b, force=parsed.force)
    if a is None and b is None:
        return _measured((parsed.a, word), parsed)
    known, unknown = (word, parsed.a) if a is None else (parsed.a, word)
    raise UserError(
        f"{known!r} names stored results and {unknown!r} does not; name two runs, or two versions of a kernel"
    )


def _measured(words: Sequence[str], parsed: argparse.Namespace) -> Outcome:
    """Builds and checks both versions of a kernel, times them in the same rounds, and returns the comparison.

    `words` names the two versions, each by a git revision, a kernel or its file. No results are stored. If both have
    the same source, nothing is measured.
    """
    from kernel_harness.problem.version import version
    from kernel_harness.results import comparison

    if parsed.problem is None:
        raise UserError(
            f"neither {words[0]!r} nor {words[1]!r} names stored results; to compare two revisions or files of a "
            "kernel, add --problem (and --kernel)"
        )
    versions = [version(word, parsed.kernels, parsed.problem, Path.cwd()) for word in words]
    # Kernels of the two sides are matched by name, so both versions must have the same name.
    name = " -> ".join(dict.fromkeys(v.path.stem for v in versions))
    if versions[0].source == versions[1].source:
        same = comparison.Row(
            name, (), comparison.Change.SAME, None, None, None, "both have the same source: nothing has changed"
        )
        a, b = (comparison.side(v.name, []) for v in versions)
        return comparison.Outcome(a, b, (same,))
    results = _judged(versions, parsed.problem, parsed)
    _print_failures(results)
    measured = {result.kernel: result for result in results}
    a, b = (
        comparison.side(v.name, [replace(measured[v.name], kernel=name)], Path(parsed.problem).stem) for v in versions
    )
    return comparison.compare(a, b, interleaved=True)


def _judged(versions: Sequence[Candidate], problem: str, parsed: argparse.Namespace) -> list[Result]:
    """Judges both versions. The first one is the baseline, so timing ends when the ratio of their times is known."""
    with started_fork_server() as fork_server:
        from kernel_harness.cli.progress import Progress
        from kernel_harness.device import selection
        from kernel_harness.problem import lookup
        from kernel_harness.session.session import Session
        from kernel_harness.session.settings import Settings

        device = selection.selected(parsed.device)
        timed = lookup.problem(problem, Path.cwd()).sized(parsed.shape, emulated=device.emulated)
        timed.check_inputs()
        settings = Settings(budget_s=parsed.budget_s, rounds=parsed.rounds, baseline=versions[0].name, compiled=False)
        screen = Progress()
        with screen, Session(timed, device, settings, screen, fork_server, [parsed.results]) as session:
            return session.judge(versions, lambda result: None)


def _print_failures(results: Sequence[Result]) -> None:
    for result in results:
        if not result.passed:
            print(f"{result.kernel}: {result.status}. {result.status.sentence}\n{result.reason}\n", file=sys.stderr)
