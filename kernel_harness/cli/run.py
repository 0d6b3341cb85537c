"""The default verb `run`: builds, checks and times kernels."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from kernel_harness.cli.arguments import (
    OK,
    SOME_FAILED,
    add_define,
    add_device,
    add_files,
    add_judging,
    add_kernel,
    add_problem,
    count,
    file,
    settings,
)
from kernel_harness.cli.cache import growth_told
from kernel_harness.cli.fork_server import started_fork_server
from kernel_harness.core import phases
from kernel_harness.core.errors import UserError
from kernel_harness.core.paths import command, shown
from kernel_harness.core.remark import RemarkKind
from kernel_harness.core.status import Status
from kernel_harness.core.terminal import shown_meanwhile, terminal

if TYPE_CHECKING:
    from kernel_harness.cli.progress import Progress
    from kernel_harness.problem.candidate import Candidate
    from kernel_harness.results.record import Result
    from kernel_harness.session.stored_run import StoredRun

HELP = "build, check and time the kernels of a problem (the default if no verb is given)"
EXAMPLES = (
    ("--problem matmul_tt", "judge every kernel of a problem"),
    ("matmul_tt naive tiled", "judge two of them"),
    ("--problem matmul_tt --kernel 'tiled*'", "judge the kernels whose names begin with tiled"),
    ("--problem matmul_tt --kernel ~/mine.cu", "judge a kernel file in another folder"),
    ("--problem matmul_tt --kernel mine --watch", "judge a kernel again each time its file is saved"),
    ("--problem matmul_tt --shape M=512,K=64,N=96", "judge at another size"),
    ("matmul_tt tiled --shape M=256..8192:x2", "judge at several sizes"),
    ("matmul_tt tiled --time-shapes 3", "rank by the mean over three further, secret sizes"),
    ("matmul_tt tiled --define TILE_K=16,32", "judge with several values of a constant in its file"),
)

# The phases (`core.phases`) that are shown by another name, or together with others.
_SHOWN_AS = {
    "waiting for builds": "builds", "new baselines": "timing", "sensitivity": "explanations",
    "lower bound": "explanations", "sanitizer": "explanations",
}  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of `run`."""
    add_problem(parser, "named_problem", nargs="?")
    add_kernel(parser, "named_kernels", nargs="*", help="kernels to judge, the same as with --kernel (default: all)")
    add_problem(parser, help="the same as the argument PROBLEM: give one of the two")
    add_kernel(
        parser, "--kernel", dest="kernels", action="append", default=[],
        help="judge the kernel of this name or file, or those that match a glob; may be given several times "
        "(default: all)",
    )  # fmt: skip
    add_device(parser, sweep=True)
    add_define(
        parser, "TILE=16,32: each value makes a kernel of its own; may be given several times, for all combinations"
    )
    parser.add_argument(
        "--rounds", type=count, metavar="N",
        help="time exactly N rounds instead of using --budget; a round calls each kernel once",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", type=count, metavar="N", help="the number of parallel builds (default: by processor cores and memory)"
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="draw the inputs of the checks from this seed (default: a random seed)"
    )
    parser.add_argument(
        "--case", metavar="SHAPE:DISTRIBUTION",
        help="check this case only, such as M=64,K=128,N=96:normal; time nothing and store nothing",
    )  # fmt: skip
    add_judging(
        parser, "torch, torch.compile, torch.compile:max-autotune or the name of a kernel",
        "the most seconds to spend on timing all kernels, except that each is timed in 8 rounds at least, "
        "2 under emulation (default: 60 on a GPU, 2 under emulation)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object per result instead of the table")
    add_files(parser)
    parser.add_argument(
        "--bundle", type=file, metavar="ZIP",
        help="write the kernels, the problem and the results with samples and seeds, for `verify` on another machine",
    )  # fmt: skip
    parser.add_argument("--sign", type=Path, metavar="KEY", help="sign the bundle with this private key of OpenSSH")
    parser.add_argument(
        "--watch", action="store_true", help="keep running, and judge a kernel again when its file is saved"
    )
    parser.add_argument(
        "--strict", action="store_true", help="under emulation: require that nvcc, too, compiles each kernel"
    )
    parser.add_argument(
        "--server", metavar="URL",
        help="have the kernels judged by a server that `serve` runs; $KERNEL_HARNESS_TOKEN has the token",
    )  # fmt: skip


def main(parsed: argparse.Namespace) -> int:
    """Judges the kernels, then prints the leaderboard, the failures and the path of the leaderboard's CSV file.

    With several shapes, one table of them all comes last. Returns 0 if every kernel passed, else 1. A baseline that
    failed does not count, nor does a kernel for which this machine lacks something, unless it was asked for by name.
    Raises UserError for mistakes of the user, and KeyboardInterrupt for Ctrl-C.
    """
    _take_names(parsed)
    if parsed.server is not None:
        from kernel_harness.cli import remote_run

        return remote_run.main(parsed)
    if len(parsed.shapes) > 1 and (parsed.watch or parsed.case is not None):
        option = "--watch" if parsed.watch else "--case"
        raise UserError(f"{option} takes one shape, and --shape names {len(parsed.shapes)}")
    if parsed.bundle and (len(parsed.shapes) > 1 or parsed.watch or parsed.case is not None):
        raise UserError("--bundle takes one whole run at one shape: leave out --watch, --case and further --shape")
    if parsed.sign and not parsed.bundle:
        raise UserError("--sign signs a bundle: name its file with --bundle")
    if len(parsed.shapes) > 1:
        if parsed.time_shapes:
            raise UserError(f"--time-shapes takes one --shape, and --shape names {len(parsed.shapes)}")
        parsed.time_shapes = [0]  # each of the shapes has a table of its own
    with ExitStack() as running:
        with shown_meanwhile("harness  loading torch"), phases.phase("start"):
            fork_server = running.enter_context(started_fork_server())
            running.enter_context(growth_told())
            from kernel_harness.cli.progress import Progress
            from kernel_harness.problem import lookup
            from kernel_harness.session.stored_run import StoredRun

        # torch.compile takes seconds to start. Chosen kernels are compared with it only if --baseline names it.
        wanted = settings(parsed, compiled=not (parsed.kernels or parsed.quick))
        progress = Progress(as_json=parsed.json)
        with shown_meanwhile("harness  choosing sizes and inputs"):
            at_shapes = [
                StoredRun(parsed.problem, parsed.kernels, replace(wanted, shape=shape), progress, fork_server)
                for shape in parsed.shapes or [{}]
            ]
        results = _judge_all(list({tuple(run.shape.items()): run for run in at_shapes}.values()), progress, parsed)
        asked_for = lookup.asked_for(parsed.kernels, at_shapes[0].candidates)
        if parsed.bundle:
            _write_bundle(at_shapes[0], results, parsed)
    return SOME_FAILED if any(is_failure(result, asked_for) for result in results) else OK


def is_failure(result: Result, asked_for: Set[str]) -> bool:
    """Returns whether a result is a reason for the exit code 1. `asked_for` has the kernels that the user named."""
    lacking = result.status is Status.UNSUPPORTED and result.kernel not in asked_for
    return not (result.passed or result.is_baseline or lacking)


def _write_bundle(run: StoredRun, results: Sequence[Result], parsed: argparse.Namespace) -> None:
    from kernel_harness import __version__
    from kernel_harness.results import bundle

    bundle.write(
        parsed.bundle, (run.problem_name, run.problem_text), run.candidates, results, __version__, parsed.sign
    )  # fmt: skip
    print(shown(parsed.bundle), file=sys.stderr if parsed.json else sys.stdout)


def _take_names(parsed: argparse.Namespace) -> None:
    """Sets `problem` and `kernels` from the words without an option. With --problem, all of these name kernels.

    Raises UserError if no problem is given.
    """
    words = [*filter(None, [parsed.named_problem]), *parsed.named_kernels]
    if parsed.problem is None and not words:
        example = f"{shlex.join(command())} --problem matmul_tt"
        raise UserError(f"give a problem, as PROBLEM or --problem, for example: {example}; `list` shows them")
    parsed.problem, named = (words[0], words[1:]) if parsed.problem is None else (parsed.problem, words)
    parsed.kernels = [*named, *parsed.kernels]


def _judge_all(runs: Sequence[StoredRun], progress: Progress, parsed: argparse.Namespace) -> list[Result]:
    """Judges the kernels at the shape of each of `runs`, prints the outcome and returns the results.

    With `--watch`, kernels are judged again until the user interrupts the run. Raises KeyboardInterrupt as `_judge`
    does.
    """
    from kernel_harness.problem.problem import shape_text
    from kernel_harness.results.record import new_run_id

    sweep = _Sweep(new_run_id()) if len(runs) > 1 else None
    try:
        for run in runs:
            with ExitStack() as ended_last:
                if sweep:
                    print(f"{shape_text(run.shape)}:", file=sys.stderr, flush=True)
                with progress:
                    ended_last.enter_context(run)
                results = _judge(run, run.candidates, progress, parsed, sweep)
                while parsed.watch:
                    results = _judge(run, run.wait_for_change(), progress, parsed, None)
    except KeyboardInterrupt as how:
        place = f"shape {runs.index(run) + 1} of {len(runs)}: " if sweep and str(how) else ""
        raise KeyboardInterrupt(f"{place}{how}") from None
    finally:
        if sweep and sweep.results and not parsed.json:
            _print_sweep(sweep, runs[0].problem_name, parsed)
    return sweep.results if sweep else results


@dataclass
class _Sweep:
    """What a run has judged so far that judges kernels at several shapes.

    `run` is its id. `results` are those at all shapes so far, and `paths` the files of the leaderboards.
    """

    run: str
    results: list[Result] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    def is_told(self, result: Result) -> bool:
        """Returns whether a result of the same kernel with the same status has been explained at an earlier shape."""
        return any((r.kernel, r.status) == (result.kernel, result.status) for r in self.results)


def _print_sweep(sweep: _Sweep, problem: str, parsed: argparse.Namespace) -> None:
    """Prints one table of the results at all shapes, the fastest variants, the phases, and the paths of CSV files."""
    from kernel_harness.results import leaderboard

    fixed, table = leaderboard.sweep(sweep.results)
    title = leaderboard.heading(problem, [replace(r, shape=fixed) for r in sweep.results], fixed)
    print(f"\n{title}", leaderboard.render(table, terminal=terminal(sys.stdout), memory=parsed.verbose > 0), sep="\n\n")
    print_fastest(sweep.results, sys.stdout)
    print("", *filter(None, [_phases(sweep.results)]), *sweep.paths, sep="\n")


def print_fastest(results: Sequence[Result], out: TextIO) -> None:
    """Prints the fastest variant of each kernel to `out`."""
    from kernel_harness.results import fastest

    if said := fastest.sentences(results):
        print("", *map(terminal(out).wrapped, said), sep="\n", file=out)


def _judge(
    run: StoredRun, chosen: Sequence[Candidate], progress: Progress, parsed: argparse.Namespace, sweep: _Sweep | None
) -> list[Result]:  # fmt: skip
    """Judges the kernels in `chosen`, prints the outcome and returns the results.

    In a `sweep`, the results are added to it, and it is printed later. If the user interrupts the run, the results that
    are final by then are still printed. The function then raises KeyboardInterrupt with a sentence on how many kernels
    were judged.
    """
    progress.finished.clear()
    start = time.perf_counter()
    try:
        with progress:
            run.judge(chosen, sweep.run if sweep else "")
    except KeyboardInterrupt:
        final = {result.kernel for result in progress.finished}
        raise KeyboardInterrupt(_judged_so_far([candidate.name for candidate in chosen], final, run.stored)) from None
    finally:
        if progress.finished or run.stored:
            with phases.phase("report"):
                _print_outcome(run, progress.finished, parsed, sweep)
            if parsed.junit or parsed.markdown:
                _write_files(run, sweep.results if sweep else progress.finished, parsed)
            if parsed.watch:
                print(f"{time.perf_counter() - start:.1f} s; watching, Ctrl-C ends", flush=True)
    return list(progress.finished)


def _judged_so_far(kernels: Sequence[str], final: Set[str], stored: Set[str]) -> str:
    """Returns a sentence that says how many of `kernels` were judged when the run was interrupted.

    `final` has the names of the kernels whose result is final, `stored` those of which any result is stored.
    """
    judged, checked = (sum(name in names for name in kernels) for names in (final, stored - final))
    also = f", {checked} passed the checks and {'was' if checked == 1 else 'were'} not timed" if checked else ""
    return f"{judged} of {len(kernels)} judged{also}.{' The results so far are stored.' if stored else ''}"


def _print_outcome(
    run: StoredRun, finished: Sequence[Result], parsed: argparse.Namespace, sweep: _Sweep | None
) -> None:
    """Writes the leaderboard's files. Prints the leaderboard, the time of each phase and the CSV file's path to stdout.

    The remarks on kernels that passed, the failures and the fastest variants follow the leaderboard. With `--json` only
    these are printed, to stderr. With `--case` each kernel's status replaces the leaderboard, and no file of a
    leaderboard is written. In a `sweep`, to which the results are added, only remarks and failures are printed that
    were not printed at an earlier shape.
    """
    from kernel_harness.results import leaderboard

    out = sys.stderr if parsed.json else sys.stdout
    if parsed.case is not None:
        for result in finished:
            print(f"{result.kernel}: {result.status}  {parsed.case}", file=out)
        explain(run.problem_name, finished, out, run.journal.keep_log, with_output=True)
        return
    board = run.board()
    if not parsed.json and sweep is None:
        chosen = [candidate.name for candidate in run.candidates]
        rows = leaderboard.of_interest(board.table, chosen) if parsed.kernels or parsed.watch else board.table
        print(board.title, leaderboard.render(rows, terminal=terminal(out), memory=parsed.verbose > 0), sep="\n\n")
        if more := len(board.table) - len(rows):
            rows_are = "row of an earlier run is" if more == 1 else "rows of earlier runs are"
            print(f"\n{more} {rows_are} in {run.table_name} alone.")
        if board.gone:
            print(f"\nLeft out, because the file is gone: {', '.join(board.gone)}")
    new = [result for result in finished if sweep is None or not sweep.is_told(result)]
    explain(run.problem_name, new, out, run.journal.keep_log, with_output=parsed.verbose > 0)
    if sweep is None:
        print_fastest(finished, out)
    else:
        sweep.results += finished
    path = run.save(board)  # last, because the disk may be full: the table is then already printed
    if sweep is not None:
        sweep.paths.append(shown(path))
    elif not parsed.json:
        said = (_phases(finished), _over_budget(finished), _left_out(run), *map(shown, run.tables(path)))
        print("", *filter(None, said), sep="\n")


def _left_out(run: StoredRun) -> str:
    from kernel_harness.problem.problem import shape_text

    shapes = "; ".join(map(shape_text, run.left_out))
    return f"Not timed at shapes of the file that are too large for the emulation: {shapes}" if shapes else ""


def _write_files(run: StoredRun, finished: Sequence[Result], parsed: argparse.Namespace) -> None:
    """Writes the files that `--junit` and `--markdown` name. They have the results of this run alone, at each shape."""
    from kernel_harness.cli import ci
    from kernel_harness.problem import lookup
    from kernel_harness.results import leaderboard

    asked_for = lookup.asked_for(parsed.kernels, run.candidates)
    cases, documents = [], []
    for _, group in groupby(finished, key=lambda result: tuple(result.shape.items())):
        results = list(group)
        at = results[0].shape, results[0].further_shapes
        title = leaderboard.heading(run.problem_name, results, *at)
        kernels = [result for result in results if not result.is_baseline]
        told = [r for r in kernels if not r.passed or r.findings]
        reasons = [(r.kernel, str(r.status), r.reason.partition("\n")[0]) for r in told]
        table = leaderboard.render(leaderboard.rank(results, *at), "github")
        cases += [ci.of_result(title, result, failed=is_failure(result, asked_for)) for result in kernels]
        documents.append(leaderboard.document(title, table, reasons))
    ci.write(parsed, cases, "\n".join(documents))


def explain(
    problem: str,
    finished: Sequence[Result],
    out: TextIO,
    keep_log: Callable[[Result], Path | None],
    *,
    with_output: bool,
) -> None:
    """Prints remarks on kernels that passed and the text of each failure to `out`.

    `keep_log` writes the log of a failure to a file and returns its path, or None if it writes none. If `with_output`,
    also prints what kernels that passed have printed. Remarks on the problem are printed once.
    """
    from kernel_harness.results import failure_text

    of_problem: dict[str, None] = {}
    for result in finished:
        if result.passed and with_output and (lines := failure_text.printed(result)):
            print("", f"{result.kernel}:", *lines, sep="\n", file=out)
        own = tuple(remark for remark in result.remarks if remark.kind is not RemarkKind.PROBLEM)
        of_problem |= dict.fromkeys(remark.sentence for remark in result.remarks if remark not in own)
        if result.passed and (reason := replace(result, remarks=own).reason):
            print("", terminal(out).wrapped(f"{result.kernel}: {reason}"), sep="\n", file=out)
            if tip := next((remark.advice for remark in own if remark.advice), ""):
                print(terminal(out).wrapped(f"try: {tip}", "  "), file=out)
        if not result.passed:
            log = keep_log(result)
            text = failure_text.failure(result, terminal(out), shown(log) if log else "")
            print("", text, sep="\n", file=out)
    if of_problem:
        print("", terminal(out).wrapped(f"{problem}: {' '.join(of_problem)}"), sep="\n", file=out)


def _phases(finished: Sequence[Result]) -> str:
    """Returns a line with the seconds of each phase of the command, which add up to all of them, and the run ids."""
    total: dict[str, float] = {}
    for path, seconds in phases.taken().items():
        outermost = path.partition(" / ")[0]
        name = _SHOWN_AS.get(outermost, outermost)
        total[name] = total.get(name, 0) + seconds
    in_order = sorted(total.items(), key=lambda item: item[0] == phases.OUTSIDE)
    told = [f"{name} {seconds:.1f} s" for name, seconds in in_order if seconds >= 0.05]
    runs = [f"run {name}" for name in dict.fromkeys(result.run for result in finished)]
    line = ", ".join([*told, f"{sum(total.values()):.1f} s in all", *runs])
    return terminal(sys.stdout).wrapped(line)


def _over_budget(finished: Sequence[Result]) -> str:
    """Returns a line that says why timing took longer than `--budget` allows; empty if it did not."""
    from kernel_harness.device import policy

    timed = [result for result in finished if "timing" in result.phases_s]
    budget_s = timed[0].settings.budget_s if timed and timed[0].settings.rounds is None else None
    # The kernels of one cohort share one equal number, at each timed shape.
    took = {each for result in timed for each in result.phases_s.items() if each[0].startswith("timing")}
    if budget_s is None or sum(seconds for _, seconds in took) <= budget_s:
        return ""
    return (
        f"Timing took longer than --budget {budget_s:g}: the budget does not limit the first "
        f"{policy.of(emulated=timed[0].emulated).least_rounds} rounds, warm-up and the start of processes."
    )
