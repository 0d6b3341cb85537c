"""The verb `suite`: judges many candidates of many problems, and computes figures over them."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_harness.cli.arguments import OK, SOME_FAILED, add_devices, add_judging, count, settings
from kernel_harness.core.errors import UserError
from kernel_harness.core.paths import RESULTS, shown

if TYPE_CHECKING:
    from kernel_harness.suite.device_worker import SuiteProblem
    from kernel_harness.suite.store import SuiteStore

HELP = "judge many candidates of many problems, and compute figures such as fast_p and pass@k"
EXAMPLES = (
    ("suite problems --kernels kernels", "judge every candidate of every problem"),
    ("suite KernelBench/level1 --kernels runs/mine", "judge the kernels that KernelBench generated"),
    ("suite problems --kernels kernels --resume", "go on with an interrupted suite"),
)

_NAME = re.compile(r"[\w.-]+")


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
    add_devices(parser)
    parser.add_argument(
        "--gpus", type=_numbers, metavar="0,1,...", help="the numbers of the GPUs to use (default: all)"
    )
    parser.add_argument(
        "--jobs", type=count, metavar="N",
        help="the number of processor cores to use: with GPUs they build candidates, without one each judges "
        "candidates (default: all)",
    )  # fmt: skip
    parser.add_argument("--resume", action="store_true", help="go on with this suite; nothing finished is repeated")
    parser.add_argument(
        "--name", metavar="NAME", help="the suite's name: results go to <results>/suites/NAME (default: of --kernels)"
    )
    add_judging(
        parser, "torch, torch.compile or torch.compile:max-autotune",
        "the most seconds to spend on timing one candidate (default: 10 on a GPU, 0.3 under emulation)",
    )  # fmt: skip
    parser.add_argument(
        "--ray", metavar="ADDRESS",
        help="judge on this Ray cluster, a device worker for each GPU; local: a new one of this machine (needs ray)",
    )  # fmt: skip
    parser.add_argument("--gpu-type", metavar="TYPE", help="with --ray: use GPUs of this type only, such as H200")
    parser.add_argument("--parquet", action="store_true", help="also write candidates.parquet (needs pyarrow)")


def main(parsed: argparse.Namespace) -> int:
    """Judges the candidates of the suite that have no verdict yet. Prints the figures and the paths of written files.

    Returns 0 if every candidate passed, else 1. Raises UserError for mistakes of the user, and KeyboardInterrupt for
    Ctrl-C.
    """
    from kernel_harness.cli.suite_progress import SuiteProgress
    from kernel_harness.session.settings import check_baseline
    from kernel_harness.suite import allocation, collection, ray_cluster, scheduler, summary
    from kernel_harness.suite.store import SuiteStore
    from kernel_harness.suite.suite import Suite, Workers

    if parsed.parquet:
        summary.require_parquet()
    if parsed.ray is not None:
        ray_cluster.require()
        if parsed.gpus is not None:
            raise UserError("--gpus is for this machine; a Ray cluster places the device workers")
    found = collection.collect(parsed.problems, parsed.kernels, Path.cwd())
    if note := collection.unmatched_note(found):
        print(note, file=sys.stderr)
    store = SuiteStore(_folder(parsed))
    if store.facts() is not None and not parsed.resume:
        raise UserError(f"there is a suite in {shown(store.folder)}; --resume goes on with it, --name starts another")
    if parsed.ray is None:
        chosen = allocation.of_this_machine(parsed.device, parsed.gpus, parsed.jobs)
        workers: Workers = partial(scheduler.LocalScheduler, chosen)
    else:
        chosen = allocation.of_cluster(parsed.device, parsed.jobs)
        workers = partial(ray_cluster.on_cluster, parsed.ray, parsed.gpu_type, chosen)
    check_baseline(parsed.baseline, emulated=chosen.emulated)
    budget_s = chosen.budget_s(parsed.budget_s, quick=parsed.quick)
    wanted = settings(parsed, budget_s=budget_s, jobs=chosen.builds, compiled=False, results=RESULTS)
    progress = SuiteProgress(found.tasks)
    suite = Suite(found, wanted, workers, store, progress)
    try:
        with progress:
            suite.run()
    except KeyboardInterrupt:
        _report(store, found.problems, parsed.parquet)
        raise KeyboardInterrupt(
            f"{progress.judged} of {progress.total} candidates have a verdict, which is stored; --resume goes on."
        ) from None
    _report(store, found.problems, parsed.parquet)
    by_status = progress.by_status
    return OK if by_status.total() == by_status["PASSED"] + by_status["UNSUPPORTED"] else SOME_FAILED


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(int(word) for word in text.split(","))
    if len(set(numbers)) < len(numbers) or min(numbers) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of different numbers, such as 0,1")
    return numbers


def _folder(parsed: argparse.Namespace) -> Path:
    name = parsed.name or parsed.kernels.resolve().name
    if not _NAME.fullmatch(name) or name.startswith("."):
        raise UserError(
            f"{name!r} cannot be the name of a folder of results; choose a --name of letters, digits, _, - and ., "
            "which does not begin with ."
        )
    return Path(parsed.results, "suites", name)


def _report(store: SuiteStore, problems: Sequence[SuiteProblem], parquet: bool) -> None:
    """Writes the summary's files and the HTML page. Prints the figures, and the paths of summary.md and the page.

    Does nothing without verdicts. With `parquet`, candidates.parquet is written and its path is printed, too.
    """
    from kernel_harness.suite import page, summary

    facts, entries = store.facts(), store.read()
    if facts is None or not entries:
        return
    found = summary.summarize(facts, entries, problems)
    print(summary.text(found, with_problems=False))
    paths = [summary.save(store.folder, found), page.save(store.folder, found)]
    paths += [summary.save_parquet(store.folder, found)] if parquet else []
    print(*map(shown, paths), sep="\n")
