"""The verb `run`: what was asked for, judged; then the table, the failures and where the results are."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_harness import explain, find, leaderboard, underway
from kernel_harness.builtin import BASELINES, COMPILED
from kernel_harness.candidate import Candidate
from kernel_harness.device import Device
from kernel_harness.errors import UserError
from kernel_harness.judge import Session, results_folder
from kernel_harness.paths import shown
from kernel_harness.precision import Precision
from kernel_harness.problem import Problem, shape_text
from kernel_harness.process import Limits
from kernel_harness.progress import Progress
from kernel_harness.results import Journal, Result, now, to_json
from kernel_harness.settings import Settings
from kernel_harness.spawn import Template
from kernel_harness.terminal import terminal

_POLL_S = 0.1


def run(options: argparse.Namespace, root: Path, template: Template) -> list[Result]:
    """Judges what the options name and prints it; with --watch, again whenever a file is saved.

    Raises UserError for what the user can mend, KeyboardInterrupt for Ctrl-C.
    """
    device = find.device(options.device, strict=options.strict)
    usual = find.problem(options.problem, root).on(emulated=device.emulated)
    chosen = find.kernels(options.kernel, usual.name, root)
    timed = usual.at(options.shape)
    _check_baseline(options.baseline, chosen, device)
    journal = Journal(results_folder(options.results, timed, device))
    journal.check_writable()
    screen = _Screen(options.json)
    with Session(timed, device, _settings(options), screen, template, [options.results], journal) as session:
        results = _judged(session, chosen, options, usual, journal, screen)
        while options.watch:
            chosen, changed = _wait_for_change(options, usual.name, root, chosen)
            results = _judged(session, changed, options, usual, journal, screen)
    return results


def measured(chosen: Sequence[Candidate], options: argparse.Namespace, root: Path, template: Template) -> list[Result]:
    """Judges candidates in one run of which nothing is kept. Raises as `run` does."""
    device = find.device(options.device)
    timed = find.problem(options.problem, root).on(emulated=device.emulated).at(options.shape)
    screen = Progress()
    with Session(timed, device, _settings(options), screen, template, hidden=[options.results]) as session, screen:
        return session.judge(chosen, lambda result: None)


@dataclass
class _Screen(Progress):
    """Progress that remembers what is final, and prints it at once where JSON was asked for."""

    as_json: bool
    finished: list[Result] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def settled(self, result: Result) -> None:
        super().settled(result)
        self.finished.append(result)
        if self.as_json:
            print(json.dumps(to_json(result, now()), default=str), flush=True)


def _judged(
    session: Session,
    chosen: Sequence[Candidate],
    options: argparse.Namespace,
    usual: Problem,
    journal: Journal,
    screen: _Screen,
) -> list[Result]:
    """Whatever interrupts it, what is final by then is shown."""
    screen.finished.clear()
    start = time.perf_counter()
    kept = False

    def keep(result: Result) -> None:
        nonlocal kept
        if options.case is None:
            journal.append(result)
            kept = True

    try:
        with screen:
            session.judge(longest_build_first(chosen, underway.read(journal)), keep)
    finally:
        if screen.finished or kept:
            _conclude(options, session.problem, usual, journal, screen.finished)
            if options.watch:
                print(f"{time.perf_counter() - start:.1f} s; watching, Ctrl-C ends", flush=True)
    return list(screen.finished)


def longest_build_first(chosen: Sequence[Candidate], records: Sequence[Mapping[str, Any]]) -> list[Candidate]:
    """By what each kernel's last real build took; one never built goes by its length, as if a second a kilobyte."""
    took = {
        record["kernel"]: sum(b["seconds"] for b in record["builds"])
        for record in records
        if record["builds"] and not any(b["cached"] for b in record["builds"])
    }
    return sorted(chosen, key=lambda c: took.get(c.name, len(c.source) / 1000), reverse=True)


def _wait_for_change(
    options: argparse.Namespace, problem: str, root: Path, known: Sequence[Candidate]
) -> tuple[list[Candidate], list[Candidate]]:
    """All candidates, and those whose source is new or not what it was, once there are any."""
    before = {candidate.name: candidate.source for candidate in known}
    while True:
        time.sleep(_POLL_S)
        try:
            now_there = find.kernels(options.kernel, problem, root)
        except (find.NotFound, OSError):
            continue  # an editor that replaces the file has it gone for a moment
        changed = [c for c in now_there if c.source.strip() and before.get(c.name) != c.source]
        if changed:
            return now_there, changed


def _settings(options: argparse.Namespace) -> Settings:
    chosen: dict[str, Any] = {
        "limits": Limits(call_s=options.timeout, build_s=options.build_timeout), "budget_s": options.budget,
        "rounds": options.rounds, "baseline": options.baseline,
        "jobs": options.jobs, "quick": options.quick, "case": options.case,
    }  # fmt: skip
    if options.precision is not None:
        try:
            chosen["precision"] = Precision(options.precision)
        except ValueError:
            names = ", ".join(p.value for p in Precision)
            raise UserError(f"no precision {options.precision!r}; there are {names}") from None
    if options.seed is not None:
        chosen["seed"] = options.seed
    return Settings(**chosen)


def _check_baseline(name: str, chosen: Sequence[Candidate], device: Device) -> None:
    kernels = [candidate.name for candidate in chosen]
    if name not in (*BASELINES, *kernels):
        raise UserError(f"no baseline {name!r}; there are {', '.join((*BASELINES, *kernels))}")
    if device.emulated and name in COMPILED:
        raise UserError(f"{name} needs a GPU: torch.compile cannot compile for the emulated device")


def _conclude(
    options: argparse.Namespace, timed: Problem, usual: Problem, journal: Any, finished: Sequence[Any]
) -> None:
    """The table, or nothing with --json, on stdout; then the leaderboard on disk, where there may be no room for it."""
    failures = [r for r in finished if not r.passed]
    if options.case is not None:
        for result in finished:
            print(f"{result.kernel}: {result.status}  {options.case}", file=sys.stderr if options.json else sys.stdout)
    else:
        table = leaderboard.rank(underway.read(journal), timed.shape)
        title = f"{timed.name}, {shape_text(timed.shape)}"
        if not options.json:
            print(title, leaderboard.render(table), sep="\n\n")
    out = sys.stderr if options.json else sys.stdout
    for result in failures:
        log = journal.keep_log(result)
        print("", explain.failure(result, terminal(out), shown(log) if log else ""), sep="\n", file=out)
    if options.case is None:
        path = leaderboard.save(journal.path.parent, leaderboard.file_stem(timed.shape, usual.shape), title, table)
        if not options.json:
            print(f"\n{_seconds(finished)}\n{shown(path)}")


def _seconds(finished: Sequence[Any]) -> str:
    total: dict[str, float] = {}
    for result in finished:
        for phase, seconds in result.phases_s.items():
            # Builds and queues add up; a cohort's timing is shared by all of its kernels.
            total[phase] = max(total.get(phase, 0), seconds) if phase == "timing" else total.get(phase, 0) + seconds
    words = [f"{phase} {seconds:.1f} s" for phase, seconds in total.items() if phase != "queue"]
    return ", ".join([*words, *(f"run {name}" for name in dict.fromkeys(r.run for r in finished))])
