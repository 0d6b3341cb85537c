"""One run: the order in which things happen. What each step does is elsewhere."""

from __future__ import annotations

import os
import secrets
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import psutil
import torch

from kernel_harness import builtin, race, results, sanitize
from kernel_harness.candidate import Candidate
from kernel_harness.cases import Case, Reference, plan
from kernel_harness.device import Device
from kernel_harness.errors import UserError
from kernel_harness.examine import Fault, Finding, Refused, Subject, examine, file_name
from kernel_harness.precision import Precision
from kernel_harness.problem import Problem, shape_text
from kernel_harness.process import Limits, Template
from kernel_harness.race import BASELINE, Arm, Cohort, Stop, cohorts
from kernel_harness.results import Result
from kernel_harness.status import Status
from kernel_harness.timing import summarize

# One nvcc with torch's headers takes 3 GB; the emulator's units take less than one.
_BUILD_BYTES = {True: 1 << 30, False: 3 << 30}


@dataclass(frozen=True)
class Settings:
    """What a user may choose about a run."""

    seed: int = field(default_factory=lambda: secrets.randbits(48))
    budget_s: float | None = None
    rounds: int | None = None
    precision: Precision | None = None
    jobs: int | None = None
    quick: bool = False
    case: str | None = None
    limits: Limits = field(default_factory=Limits)


class Observer(Protocol):
    """Who is told what happens, as it happens."""

    def stage(self, kernel: str, text: str) -> None:
        """A candidate has begun something."""

    def settled(self, result: Result) -> None:
        """A result is final, and on the disk."""


class Session:
    """What runs of one problem on one device share: a warm template, the reference, the cases.

    As a context manager it ends with every process it started. Entering it raises NoCompiler where nothing can
    be built here; making one raises UserError for a problem or a case that cannot be used.
    """

    def __init__(
        self, problem: Problem, device: Device, settings: Settings, observer: Observer, template: Template | None = None
    ) -> None:
        self.template = template or Template()
        self.problem, self.device, self.settings, self.observer = problem, device, settings, observer
        self.reference = Reference(problem, "cpu" if device.emulated else device.torch_device, settings.precision)
        self.cases = _chosen(plan(problem, settings.seed, quick=settings.quick), settings.case)
        self.environment: dict[str, Any] = {}

    def __enter__(self) -> Session:
        self.observer.stage("", "preparing the device (the first time takes half a minute)")
        self.device.prepare()
        self.environment = {**self.device.environment(), **results.environment()}
        self.template.prepare(self.device.name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.template.close()

    def judge(self, candidates: Sequence[Candidate], keep: Callable[[Result], None]) -> list[Result]:
        """Builds, checks and times the candidates. `keep` gets every result as soon as it is final."""
        passed: dict[str, tuple[Candidate, Subject, Finding]] = {}
        settled: list[Result] = []

        def settle(result: Result) -> None:
            keep(result)
            settled.append(result)
            self.observer.settled(result)

        try:
            for candidate, subject, finding in _examined(self, candidates):
                if subject is not None and finding.status is Status.PASSED and self.settings.case is None:
                    passed[candidate.name] = (candidate, subject, finding)
                    keep(_result(self, candidate, finding))
                else:
                    settle(_result(self, candidate, finding))
            for result in _timed(self, passed):
                settle(result)
        finally:
            for _, subject, _ in passed.values():
                subject.close()
        return settled


def judge(
    problem: Problem,
    candidates: Sequence[Candidate],
    device: Device,
    settings: Settings,
    observer: Observer,
    keep: Callable[[Result], None],
) -> list[Result]:
    """One Session that judges once."""
    with Session(problem, device, settings, observer) as session:
        return session.judge(candidates, keep)


def _examined(run: Session, candidates: Sequence[Candidate]) -> Iterator[tuple[Candidate, Subject | None, Finding]]:
    """Builds side by side; checks one at a time, as soon as something is built."""
    with ThreadPoolExecutor(_jobs(run)) as pool:
        queued = time.perf_counter()
        waiting = {pool.submit(_build, run, c, queued): c for c in candidates}
        try:
            while waiting:
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    candidate = waiting.pop(future)
                    yield _check(run, candidate, future)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            run.template.close()  # ends the builds under way, so that nobody waits for them
            raise


def _build(run: Session, candidate: Candidate, queued: float) -> tuple[Subject | None, Finding]:
    start = time.perf_counter()
    finding = Finding(queue_s=start - queued)
    run.observer.stage(candidate.name, "building")
    subject = None
    try:
        subject = _subject(run)
        finding.builds = subject.load(file_name(candidate), candidate.source, "ModelNew")
    except Fault as fault:
        finding.status, finding.reason, finding.log = fault.status, fault.reason, fault.log
    finding.build_s = time.perf_counter() - start
    run.observer.stage(candidate.name, "waiting")
    return subject, finding


def _check(
    run: Session, candidate: Candidate, future: Future[tuple[Subject | None, Finding]]
) -> tuple[Candidate, Subject | None, Finding]:
    subject, finding = future.result()
    if subject is not None and finding.status is Status.PASSED:
        examine(subject, finding, run.reference, run.cases, lambda text: run.observer.stage(candidate.name, text))
        _add_remark(run, candidate, finding)
        if finding.status is Status.PASSED and run.settings.case is None:
            try:
                subject.make(run.problem)
            except (Fault, Refused) as fault:
                finding.status, finding.reason = Status.RUNTIME_ERROR, str(fault)
        run.observer.stage(candidate.name, "waiting")
    if subject is not None:
        subject.worker.pause() if finding.status is Status.PASSED else subject.close()
    return candidate, subject, finding


def _add_remark(run: Session, candidate: Candidate, finding: Finding) -> None:
    """Under emulation, what the sanitizer sees where a compiled kernel failed: beside the reason, never instead."""
    worth = finding.status in (Status.WRONG_VALUES, Status.CRASHED, Status.NONDETERMINISTIC)
    if worth and run.device.emulated and finding.builds and finding.failed_case:
        run.observer.stage(candidate.name, "looking for its mistake")
        finding.remark = sanitize.remark(run.template, run.problem, candidate, finding.failed_case, run.settings.seed)
        finding.reason += f"\nSanitizer: {finding.remark}" if finding.remark else ""


def _timed(run: Session, passed: Mapping[str, tuple[Candidate, Subject, Finding]]) -> Iterator[Result]:
    """Cohort after cohort. What was measured before an interruption is still summed up."""
    if not passed:
        return
    groups = cohorts(list(passed))
    baseline_ms: float | None = None
    for group in groups:
        started = time.perf_counter()
        with _companions(run) as companions:
            arms = [Arm(name, passed[name][1]) for name in group]
            cohort = Cohort([*arms, *companions])
            interruption: KeyboardInterrupt | None = None
            try:
                _race(run, cohort, len(groups))
            except KeyboardInterrupt as interrupt:
                interruption = interrupt
            for arm in arms:
                arm.subject.close()
            yield from _cohort_results(run, cohort, passed, baseline_ms, time.perf_counter() - started)
            if baseline_ms is None and cohort.rounds:
                baseline_ms = summarize(cohort.accepted, BASELINE, None).time_ms
            if interruption:
                raise interruption


def _race(run: Session, cohort: Cohort, groups: int) -> None:
    settings = run.settings
    default = run.device.budget_s / 4 if settings.quick else run.device.budget_s
    stop = Stop((settings.budget_s or default) / groups, run.device.half_width, settings.rounds)
    names = [arm.name for arm in cohort.arms if arm.judged]

    def tell(text: str) -> None:
        for name in names:
            run.observer.stage(name, text)

    race.race(cohort, run.reference, settings.seed, stop, tell)


def _cohort_results(
    run: Session,
    cohort: Cohort,
    passed: Mapping[str, tuple[Candidate, Subject, Finding]],
    baseline_ms: float | None,
    seconds: float,
) -> Iterator[Result]:
    rounds = cohort.accepted
    extra = {"warmup_ms": cohort.warmup_ms, "audits": cohort.audits, "orders": [list(r.order) for r in rounds]}
    for arm in cohort.arms:
        if arm.judged:
            candidate, _, finding = passed[arm.name]
            if arm.fault is not None:
                finding.status, finding.reason, finding.log = arm.fault.status, arm.fault.reason, arm.fault.log
            base = _result(run, candidate, finding)
            base = replace(base, phases_s={**base.phases_s, "timing": seconds}, settings={**base.settings, **extra})
        elif arm.name == BASELINE:
            base = _baseline_result(run, extra)
        else:
            continue
        timed = [r for r in rounds if arm.name in r.samples_ms]
        if arm.fault is None and timed:
            against = BASELINE if any(BASELINE in r.samples_ms for r in timed) else None
            timing = summarize(rounds, arm.name, against, baseline_ms=baseline_ms)
            base = _with_timing(run, base, timing)
        yield base


def _with_timing(run: Session, result: Result, timing: Any) -> Result:
    """The timing, or the verdict that no correct kernel can be that fast."""
    peaks = run.device.peaks()
    for what, number, peak in (
        ("bytes", run.problem.number("min_bytes"), peaks and peaks.bytes_per_s),
        ("operations", run.problem.number("min_flops"), peaks and peaks.fastest_flops_per_s),
    ):
        if number and peak and timing.time_ms < 1e3 * number / peak:
            reason = (
                f"{timing.time_ms:.4g} ms is less than the {1e3 * number / peak:.4g} ms that the {number:.4g} "
                f"{what} no correct kernel can do without take at this device's peak."
            )
            return replace(result, status=Status.CHEATED, reason=reason)
    return replace(result, timing=timing)


@contextmanager
def _companions(run: Session) -> Iterator[list[Arm]]:
    """The baselines, the sentinel and, where the device has a clock of its own, the null arm."""
    arms: list[Arm] = []
    try:
        for name, file, source, class_name in builtin.companions(run.problem, run.device.emulated):
            run.observer.stage("", f"starting {name}")
            subject = _subject(run)
            arms.append(Arm(name, subject, judged=False))
            subject.load(file, source, class_name)
            subject.make(run.problem, compiled=name == builtin.COMPILED)
        yield arms
    finally:
        for arm in arms:
            arm.subject.close()


def _subject(run: Session) -> Subject:
    return Subject(run.template, run.device.name, run.settings.limits)


def _result(run: Session, candidate: Candidate, finding: Finding) -> Result:
    checked = dict.fromkeys(c.case.split(":")[0] for c in finding.checks)
    return Result(
        kernel=candidate.name,
        status=finding.status,
        reason=finding.reason,
        shape=dict(run.problem.shape),
        source_sha256=candidate.sha256,
        title=candidate.title,
        checks=tuple(finding.checks),
        restricted_to=tuple(checked) if finding.refused else (),
        phases_s={"queue": finding.queue_s, "build": finding.build_s, "check": finding.check_s},
        builds=tuple(finding.builds),
        log=finding.log,
        remark=finding.remark,
        reproduce="" if finding.status is Status.PASSED else _reproduce(run, candidate, finding.failed_case),
        numbers=_numbers(run),
        environment=run.environment,
        settings=_settings(run),
    )


def _baseline_result(run: Session, extra: Mapping[str, Any]) -> Result:
    return Result(
        kernel=BASELINE, kind="baseline", status=Status.PASSED, reason="", shape=dict(run.problem.shape),
        source_sha256="", title="the reference, run eagerly", numbers=_numbers(run), environment=run.environment,
        settings={**_settings(run), **extra},
    )  # fmt: skip


def _numbers(run: Session) -> dict[str, float]:
    """FLOPs and bytes for display; a device whose times are not a GPU's gets none."""
    if run.device.emulated:
        return {}
    peaks = run.device.peaks()
    found = {
        "flops": run.problem.number("flops"), "bytes": run.problem.number("bytes_moved"),
        "peak_flops_per_s": peaks and peaks.float32_flops_per_s, "peak_bytes_per_s": peaks and peaks.bytes_per_s,
    }  # fmt: skip
    return {name: number for name, number in found.items() if number}


def _settings(run: Session) -> dict[str, Any]:
    s = run.settings
    return {
        "seed": s.seed, "limits": vars(s.limits), "budget_s": s.budget_s, "rounds": s.rounds, "quick": s.quick,
        "allowed_precision": s.precision and str(s.precision), "isolation": "process",
        "tolerance": vars(run.problem.tolerance(torch.float32)), "cases": [c.name for c in run.cases],
    }  # fmt: skip


def _reproduce(run: Session, candidate: Candidate, case: Case | None) -> str:
    words = ["python", "harness.py", "--problem", _problem_word(run.problem), "--kernel", file_name(candidate)]
    words += ["--device", run.device.name, "--shape", shape_text(run.problem.shape)]
    if case is not None:
        words += ["--case", case.name, "--seed", str(run.settings.seed)]
    if run.settings.precision is not None:
        words += ["--precision", run.settings.precision.value]
    if run.settings.limits.call_s != Limits().call_s:
        words += ["--timeout", f"{run.settings.limits.call_s:g}"]
    return shlex.join(words)


def _problem_word(problem: Problem) -> str:
    """What names the problem on the command line: its name where it is shipped, else its path."""
    shipped = problem.path.resolve().parent == Path(__file__).resolve().parent.parent / "problems"
    return problem.name if shipped else str(problem.path)


def _chosen(cases: list[Case], wanted: str | None) -> list[Case]:
    if wanted is None:
        return cases
    chosen = [case for case in cases if case.name == wanted]
    if not chosen:
        raise UserError(f"no case {wanted!r}; this run has " + ", ".join(c.name for c in cases))
    return chosen


def _jobs(run: Session) -> int:
    if run.settings.jobs:
        return run.settings.jobs
    by_memory = int(psutil.virtual_memory().available // _BUILD_BYTES[run.device.emulated])
    return max(1, min(len(os.sched_getaffinity(0)), by_memory))


def results_folder(root: Path, problem: Problem, device: Device) -> Path:
    """Where a problem's results on a device are kept."""
    return root / problem.name / device.label
