"""The verb `suite`: judges many candidates of many problems, and computes figures over them."""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_harness.cli.arguments import (
    OK,
    SOME_FAILED,
    add_limits,
    add_precision,
    add_quick,
    add_results,
    count,
    positive,
)
from kernel_harness.core.arms import BASELINE
from kernel_harness.core.errors import UserError
from kernel_harness.core.paths import shown

if TYPE_CHECKING:
    from kernel_harness.session.settings import Settings
    from kernel_harness.suite.collection import Collection
    from kernel_harness.suite.driver import Request
    from kernel_harness.suite.journal import SuiteJournal

HELP = "judge many candidates of many problems, and compute figures such as fast_p and pass@k"
EXAMPLES = (
    ("suite problems --kernels kernels", "judge every candidate of every problem"),
    ("suite KernelBench/level1 --kernels runs/mine", "judge the kernels that KernelBench generated"),
    ("suite problems --kernels kernels --resume", "go on with an interrupted suite"),
)

_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True)
class Options:
    """The options of the verb `suite`.

    `gpus` has the numbers of the GPUs to use; None means all. `jobs` is the number of cores to use; None means all.
    `name` is the name of the suite's folder; None means that of the folder of kernels. `budget_s` is the time for the
    timing of one candidate; None means the default of the device. `ray` is the address of a Ray cluster; None means
    this machine. With `ray`, `jobs` is the number of each evaluator's parallel builds, or for the device cpu of actors.
    """

    problems: tuple[str, ...]
    kernels: Path
    device: str
    gpus: tuple[int, ...] | None
    jobs: int | None
    quick: bool
    resume: bool
    name: str | None
    baseline: str
    precision: str | None
    budget_s: float | None
    timeout_s: float
    build_timeout_s: float
    ray: str | None
    gpu_type: str | None
    parquet: bool
    results: Path


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of `suite`."""
    parser.add_argument(
        "problems", nargs="+", metavar="PROBLEMS",
        help="folders of problem files (also those with folders level1, level2, ...), globs, files or names",
    )  # fmt: skip
    parser.add_argument(
        "--kernels", type=Path, required=True, metavar="FOLDER",
        help="the folder of candidates: <problem>/<name>.py or .cu, or KernelBench's "
        "level_1_problem_7_sample_0_kernel.py",
    )  # fmt: skip
    parser.add_argument(
        "--device", choices=("auto", "cuda", "cpu"), default="auto",
        help="cuda for GPUs, cpu to emulate CUDA, auto for GPUs if there are any, else cpu (default: auto)",
    )  # fmt: skip
    parser.add_argument(
        "--gpus", type=_numbers, metavar="0,1,...", help="the numbers of the GPUs to use (default: all)"
    )
    parser.add_argument(
        "--jobs", type=count, metavar="N",
        help="the number of processor cores to use: with GPUs they build candidates, without one each judges "
        "candidates (default: all)",
    )  # fmt: skip
    add_quick(parser)
    parser.add_argument("--resume", action="store_true", help="go on with this suite; nothing finished is repeated")
    parser.add_argument(
        "--name", metavar="NAME", help="the suite's name: results go to <results>/suites/NAME (default: of --kernels)"
    )
    parser.add_argument(
        "--baseline", default=BASELINE, metavar="NAME",
        help=f"what speedups are relative to: torch, torch.compile or torch.compile:max-autotune (default: {BASELINE})",
    )  # fmt: skip
    add_precision(parser)
    parser.add_argument(
        "--budget", type=positive, metavar="S",
        help="the most seconds to spend on timing one candidate (default: 10 on a GPU, 0.3 under emulation)",
    )  # fmt: skip
    add_limits(parser)
    parser.add_argument(
        "--ray", metavar="ADDRESS",
        help="judge on this Ray cluster, with an evaluator for each GPU; local: a new one of this machine (needs ray)",
    )  # fmt: skip
    parser.add_argument("--gpu-type", metavar="TYPE", help="with --ray: use GPUs of this type only, such as H200")
    parser.add_argument("--parquet", action="store_true", help="also write candidates.parquet (needs pyarrow)")
    add_results(parser)


def main(parsed: argparse.Namespace) -> int:
    """Judges the candidates of the suite that have no verdict yet. Prints the figures and the paths of written files.

    Returns 0 if every candidate passed, else 1. Raises UserError for mistakes of the user, and KeyboardInterrupt for
    Ctrl-C.
    """
    from kernel_harness.cli.suite_progress import SuiteProgress
    from kernel_harness.suite import cluster, collection, summary
    from kernel_harness.suite.driver import Driver
    from kernel_harness.suite.journal import SuiteJournal
    from kernel_harness.suite.tally import Tally

    options = _options(parsed)
    if options.parquet:
        summary.require_parquet()
    if options.ray is not None:
        cluster.require()
    found = collection.collect(options.problems, options.kernels, Path.cwd())
    if note := collection.unmatched_note(found):
        print(note, file=sys.stderr)
    journal = SuiteJournal(_folder(options))
    if journal.facts() is not None and not options.resume:
        raise UserError(f"there is a suite in {shown(journal.folder)}; --resume goes on with it, --name starts another")
    progress = SuiteProgress(Tally(found.tasks))
    driver = Driver(_request(options, found), journal, progress)
    try:
        with progress:
            driver.run()
    except KeyboardInterrupt:
        _report(journal, options)
        tally = progress.tally
        raise KeyboardInterrupt(
            f"{tally.judged} of {tally.total} candidates have a verdict, which is stored; --resume goes on."
        ) from None
    _report(journal, options)
    by_status = progress.tally.by_status
    return OK if by_status.total() == by_status["PASSED"] + by_status["UNSUPPORTED"] else SOME_FAILED


def _options(parsed: argparse.Namespace) -> Options:
    return Options(
        problems=tuple(parsed.problems), kernels=parsed.kernels, device=parsed.device, gpus=parsed.gpus,
        jobs=parsed.jobs, quick=parsed.quick, resume=parsed.resume, name=parsed.name, baseline=parsed.baseline,
        precision=parsed.precision, budget_s=parsed.budget, timeout_s=parsed.timeout,
        build_timeout_s=parsed.build_timeout, ray=parsed.ray, gpu_type=parsed.gpu_type,
        parquet=parsed.parquet, results=parsed.results,
    )  # fmt: skip


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(int(word) for word in text.split(","))
    if len(set(numbers)) < len(numbers) or min(numbers) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of different numbers, such as 0,1")
    return numbers


def _folder(options: Options) -> Path:
    name = options.name or options.kernels.resolve().name
    if not _NAME.fullmatch(name) or name.startswith("."):
        raise UserError(
            f"{name!r} cannot be the name of a folder of results; choose a --name of letters, digits, _, - and ., "
            "which does not begin with ."
        )
    return options.results / "suites" / name


def _request(options: Options, found: Collection) -> Request:
    from kernel_harness.session.settings import check_baseline
    from kernel_harness.suite import staffing
    from kernel_harness.suite.driver import Request

    chosen: staffing.Staffing[Any]
    if options.ray is not None:
        if options.gpus is not None:
            raise UserError("--gpus is for this machine; a Ray cluster places the evaluators")
        chosen = staffing.on_cluster(options.ray, options.device, options.gpu_type, options.jobs)
    else:
        chosen = staffing.staffing(options.device, options.gpus, options.jobs)
    check_baseline(options.baseline, emulated=chosen.emulated)
    budget_s = chosen.budget_s(options.budget_s, quick=options.quick)
    return Request(found, _settings(options, budget_s, chosen.builds), chosen.staff)


def _settings(options: Options, budget_s: float, builds: int) -> Settings:
    from kernel_harness.core.precision import Precision
    from kernel_harness.sandbox.process import Limits
    from kernel_harness.session.settings import Settings

    return Settings(
        budget_s=budget_s, quick=options.quick, baseline=options.baseline, compiled=False, jobs=builds,
        precision=Precision.named(options.precision),
        limits=Limits(call_s=options.timeout_s, build_s=options.build_timeout_s),
    )  # fmt: skip


def _report(journal: SuiteJournal, options: Options) -> None:
    """Writes the summary's files and the HTML page. Prints the figures, and the paths of summary.md and the page.

    Does nothing without verdicts. With `--parquet`, candidates.parquet is written and its path is printed, too.
    """
    from kernel_harness.suite import page, summary

    facts, entries = journal.facts(), journal.read()
    if facts is None or not entries:
        return
    found = summary.summarize(facts, entries)
    print(summary.text(found, with_problems=False))
    paths = [summary.save(journal.folder, found), page.save(journal.folder, found)]
    paths += [summary.save_parquet(journal.folder, found)] if options.parquet else []
    print(*map(shown, paths), sep="\n")
