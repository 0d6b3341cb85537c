"""The verb `verify`: judges the kernels of a bundle again, on this machine, and says whether the results agree."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cuda_on_cpu.compile.candidate_file import source_text
from kernel_harness.cli.arguments import OK, SOME_FAILED, add_device, positive
from kernel_harness.cli.fork_server import started_fork_server
from kernel_harness.core.errors import UserError

if TYPE_CHECKING:
    from kernel_harness.results.bundle import Bundle
    from kernel_harness.results.comparison import Outcome, Row
    from kernel_harness.results.record import Result
    from kernel_harness.session.settings import Settings

HELP = "judge the kernels of a bundle (`run --bundle`) again, and say whether the results agree"
EXAMPLES = (
    ("verify out.zip", "judge again what another machine has judged"),
    ("verify out.zip --signed-by key.pub", "the same, if this key has signed it"),
)
_NO_TIMES = "All verdicts agree. No times were compared: that takes a GPU of the same kind on both machines."
_NAME = re.compile(r"[^/\\\0]{1,200}")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of `verify`."""
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="a file that `run --bundle` has written")
    parser.add_argument("--signed-by", type=Path, metavar="KEY.pub", help="the public key that must have signed it")
    parser.add_argument(
        "--accept-problem", action="store_true",
        help="judge with the bundle's problem file if it is not one of this machine: its code is executed",
    )  # fmt: skip
    parser.add_argument(
        "--within", type=positive, default=5.0, metavar="%",
        help="the most percent by which times may certainly differ (default: 5)",
    )  # fmt: skip
    add_device(parser)


def main(parsed: argparse.Namespace) -> int:
    """Judges the kernels again. Prints both results of each kernel and what differs.

    Returns 0 if all agree, else 1. Raises UserError for a file that is no bundle, a wrong signature, or a problem that
    is not known here and not accepted.
    """
    with started_fork_server() as fork_server, tempfile.TemporaryDirectory(prefix="kernel-harness-verify-") as folder:
        from kernel_harness.cli.progress import Progress
        from kernel_harness.results import bundle, comparison
        from kernel_harness.session.stored_run import StoredRun

        found = bundle.read(parsed.bundle, parsed.signed_by)
        problem, kernels = _unpacked(found, Path(folder), accepted=parsed.accept_problem)
        progress = Progress()
        print(f"{parsed.bundle}: {_signature(found)}", file=sys.stderr, flush=True)
        settings = replace(_settings(found), results=Path(folder, "results"), device=parsed.device)
        with progress, StoredRun(str(problem), [*map(str, kernels)], settings, progress, fork_server) as run:
            run.judge(run.candidates)
        before, after = list(found.results), progress.finished
        if {result.device for result in (*before, *after)} != {before[0].device} or after[0].emulated:
            before, after = ([replace(each, timing=None, further=()) for each in side] for side in (before, after))
        sides = [
            comparison.side(label, results, found.manifest.problem)
            for label, results in (("the bundle", before), ("this machine", after))
        ]
        outcome = comparison.compare(*sides, force=True)
    print(comparison.render(outcome))
    different = [text for row in outcome.rows if (text := _difference(row, outcome, parsed.within))]
    different += [f"{name}: there is no result on one side" for name in (*outcome.only_a, *outcome.only_b)]
    timed = sum(_has_comparable_times(row, outcome) for row in outcome.rows)
    agree = f"All {len(outcome.rows)} verdicts agree, and {timed} times, as far as they are known, within"
    print("", *(different or [f"{agree} {parsed.within:g}%." if timed else _NO_TIMES]), sep="\n")
    return SOME_FAILED if different else OK


def _signature(found: Bundle) -> str:
    return f"signed by {found.signer}" if found.signer else "not signed: anybody may have written it"


def _unpacked(found: Bundle, folder: Path, *, accepted: bool) -> tuple[Path, list[Path]]:
    """Writes the files of a bundle below `folder`. Returns the paths of the problem and of the kernels.

    Raises UserError for a problem that is not a file of this machine, unless it is `accepted`.
    """
    from kernel_harness.problem import lookup

    name = found.manifest.problem
    if not all(_NAME.fullmatch(each) and not each.startswith(".") for each in (name, *found.manifest.kernels)):
        raise UserError("the bundle has a kernel whose name cannot be that of a file")
    own = lookup.problem_path(name, Path.cwd())
    is_known = own is not None and source_text(own) == found.problem_text
    if not (is_known or accepted):
        raise UserError(
            f"the problem {name!r} of the bundle is not the file of that name here, and its code would be executed; "
            "look at problem.py in the bundle, and add --accept-problem"
        )
    problem = folder / f"{name}.py"
    problem.write_text(found.problem_text, encoding="utf-8", newline="")
    kernels = [folder / f"{each.name}{each.path.suffix}" for each in found.candidates]
    if problem in kernels:
        raise UserError(f"the bundle has a kernel with the name of its problem, {name!r}")
    for path, candidate in zip(kernels, found.candidates, strict=True):
        path.write_text(candidate.source)
    return problem, kernels


def _settings(found: Bundle) -> Settings:
    """Returns the settings of the run that made the bundle, with its seed: so all checks have the same inputs."""
    from kernel_harness.session.settings import Settings

    judged = _judged(found.results)
    was = judged.settings
    return Settings.of(
        seed=was.seed, precision=was.allowed_precision and was.allowed_precision.value, baseline=was.baseline,
        budget_s=was.budget_s, rounds=was.rounds, quick=was.quick, call_s=was.limits.get("call_s", 60.0),
        build_s=was.limits.get("build_s", 300.0), shape=dict(judged.shape), compiled=False,
        time_shapes=[0, *map(dict, judged.further_shapes)], require_own_kernels=was.require_own_kernels,
    )  # fmt: skip


def _judged(results: Sequence[Result]) -> Result:
    found = next((result for result in results if not result.is_baseline), None)
    if found is None:
        raise UserError("the bundle has no result of a kernel")
    return found


def _difference(row: Row, outcome: Outcome, within_percent: float) -> str:
    """Returns a sentence on what differs between two results of a kernel; an empty text if they agree.

    Times differ if the whole interval of their ratio is further from 1 than `within_percent`.
    """
    before, after = (side.results[row.kernel, row.shape] for side in (outcome.a, outcome.b))
    if before.status is not after.status:
        return f"{row.kernel}: {before.status} in the bundle, {after.status} here"
    if not _has_comparable_times(row, outcome):
        return ""
    assert row.ratio and row.ratio.low is not None and row.ratio.high is not None
    limit = 1 + within_percent / 100
    if row.ratio.low > limit or row.ratio.high < 1 / limit:
        return f"{row.kernel}: the time in the bundle is {row.ratio.estimate:.3g} times the time here"
    return ""


def _has_comparable_times(row: Row, outcome: Outcome) -> bool:
    """Returns whether a row has a ratio of times with an interval, both of the same kind of GPU."""
    before, after = (side.results[row.kernel, row.shape] for side in (outcome.a, outcome.b))
    is_sure = row.ratio is not None and row.ratio.low is not None and row.ratio.high is not None
    return is_sure and before.device == after.device and not (before.emulated or after.emulated)
