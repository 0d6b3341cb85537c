"""From what was seen to Results: figures summed up, a record's settings and numbers. Nothing is asked here."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any

import torch

from kernel_harness import remarks
from kernel_harness.candidate import Candidate
from kernel_harness.cases import Case
from kernel_harness.clock import beyond
from kernel_harness.cohort import BASELINE, Cohort
from kernel_harness.device import Device, Steady
from kernel_harness.examine import Finding, file_name
from kernel_harness.paths import PROBLEMS
from kernel_harness.problem import Problem, shape_text
from kernel_harness.process import Limits
from kernel_harness.results import Result
from kernel_harness.settings import Settings
from kernel_harness.status import Status
from kernel_harness.timing import Round, Timing, summarize


@dataclass(frozen=True)
class Terms:
    """By what rounds become times and verdicts: plain figures, which can be written down beside them.

    `scale_ms` is torch's time in the first cohort, where known; `floors_ms`, by its name, how long what no correct
    kernel can do without takes at the device's peak.
    """

    scale_ms: float | None
    floors_ms: Mapping[str, float]


@dataclass(frozen=True)
class Context:
    """What every result of a run has in common."""

    problem: Problem
    device: Device
    settings: Settings
    cases: Sequence[Case]
    environment: Mapping[str, Any]
    isolation: str
    run: str = ""

    @cached_property
    def numbers(self) -> dict[str, float]:
        """FLOPs, bytes and what the device can do, for display; a device whose times are not a GPU's has none."""
        if self.device.emulated:
            return {}
        peaks, ceilings = self.device.peaks(), self.device.ceilings()
        found = {
            "flops": self.problem.number("flops"), "bytes": self.problem.number("bytes_moved"),
            "peak_bytes_per_s": peaks and peaks.bytes_per_s, "ceiling_bytes_per_s": ceilings.get("bytes_per_s"),
            **{f"peak_{name}_flops_per_s": rate for name, rate in (peaks.flops_per_s if peaks else {}).items()},
            **{f"ceiling_{name}": rate for name, rate in ceilings.items()},
        }  # fmt: skip
        return {name: number for name, number in found.items() if number}

    def terms(self, scale_ms: float | None) -> Terms:
        """Those of a cohort."""
        peaks = self.device.peaks()
        least = (
            ("bytes", self.problem.number("min_bytes"), peaks and peaks.bytes_per_s),
            ("operations", self.problem.number("min_flops"), peaks and peaks.fastest_flops_per_s),
        )
        floors = {f"{number:.4g} {what}": 1e3 * number / peak for what, number, peak in least if number and peak}
        return Terms(scale_ms, floors)

    @cached_property
    def recorded_settings(self) -> dict[str, Any]:
        """The choices as they are recorded."""
        s = self.settings
        return {
            "seed": s.seed, "limits": vars(s.limits), "budget_s": s.budget_s, "rounds": s.rounds, "quick": s.quick,
            "allowed_precision": s.precision and str(s.precision), "baseline": s.baseline,
            "isolation": self.isolation,
            "tolerance": vars(self.problem.tolerance(torch.float32)), "cases": [c.name for c in self.cases],
        }  # fmt: skip


def _remarked(candidate: Candidate, finding: Finding) -> str:
    return " ".join(remarks.on(candidate.source, finding.launches)) if finding.status is Status.PASSED else ""


def of_candidate(context: Context, candidate: Candidate, finding: Finding) -> Result:
    """What is known of a candidate before it is timed."""
    checked = dict.fromkeys(c.case.split(":")[0] for c in finding.checks)
    information = {"first_call_ms": finding.first_call_ms} if finding.first_call_ms else {}
    return Result(
        kernel=candidate.name,
        status=finding.status,
        reason=finding.reason or _remarked(candidate, finding),
        shape=dict(context.problem.shape),
        source_sha256=candidate.sha256,
        title=candidate.title,
        checks=tuple(finding.checks),
        restricted_to=tuple(checked) if finding.refused else (),
        phases_s={"queue": finding.queue_s, "build": finding.build_s, "check": finding.check_s},
        builds=tuple(finding.builds),
        log=finding.log,
        remark=finding.remark,
        reproduce=_reproduce(context, candidate, finding.failed_case),
        numbers=context.numbers,
        information=information,
        environment=context.environment,
        settings=context.recorded_settings,
        run=context.run,
    )


def untimed(context: Context, cohort: Cohort, candidates: Mapping[str, tuple[Candidate, Finding]]) -> Iterator[Result]:
    """Those of a cohort who are reported, as far as they are known without its rounds."""
    for arm in cohort.arms:
        if arm.reported:
            yield _of_baseline(context, arm.name) if arm.trusted else of_candidate(context, *candidates[arm.name])


def timed(results: Iterable[Result], cohort: Cohort, terms: Terms, seconds: float) -> Iterator[Result]:
    """The same results with what the rounds say. `seconds`: what timing took."""
    arms, rounds = {arm.name: arm for arm in cohort.arms}, cohort.accepted
    for result in results:
        arm = arms[result.kernel]
        if not arm.trusted:
            result = replace(result, phases_s={**result.phases_s, "timing": seconds})
            if arm.fault is not None:
                result = replace(result, status=arm.fault.status, reason=arm.fault.reason, log=arm.fault.log)
        extra = {**result.settings, **_measured(cohort, rounds, arm.name)}
        result = replace(result, settings=extra, information={**result.information, **_information(cohort, arm.name)})
        own = [r for r in rounds if arm.name in r.samples_ms]
        if arm.fault is None and any(r.rejected is None for r in own):
            against, scale = (_beside(own, name) for name in (result.settings["baseline"], BASELINE))
            resolution_ms = cohort.resolution_ms(arm.name, against or BASELINE)
            timing = summarize(
                rounds, arm.name, against, scale=scale, scale_ms=terms.scale_ms, resolution_ms=resolution_ms
            )
            result = _with_timing(terms, result, timing)
        elif result.status is Status.PASSED and (why := cohort.broken.reason if cohort.broken else _left_out(own)):
            result = left_untimed(result, why)
        yield result


def left_untimed(result: Result, why: str) -> Result:
    """A result that keeps its status, and says why it has no time."""
    return replace(result, reason=f"{result.reason} It was not timed: {why}".strip())


def _left_out(rounds: Sequence[Round]) -> str:
    """Why none of some rounds counts; nothing where there is none."""
    return f"none of {len(rounds)} rounds counts; in the last {rounds[-1].rejected}." if rounds else ""


def _beside(timed: Sequence[Round], name: str) -> str | None:
    """An arm's name, if rounds that count hold it."""
    return name if any(name in r.samples_ms for r in timed if r.rejected is None) else None


def _of_baseline(context: Context, name: str) -> Result:
    title = "the reference, run eagerly" if name == BASELINE else f"the reference by {name}"
    return Result(
        kernel=name, kind="baseline", status=Status.PASSED, reason="", shape=dict(context.problem.shape),
        source_sha256="", title=title, numbers=context.numbers, environment=context.environment,
        settings=context.recorded_settings, run=context.run,
    )  # fmt: skip


def _measured(cohort: Cohort, accepted: Sequence[Round], arm: str) -> dict[str, Any]:
    """What the record holds of the rounds beside the samples that count, so that nothing is dropped silently."""
    return {
        "warmup_ms": [r.samples_ms.get(arm) for r in cohort.warmup],
        "own_clock_ms": [r.samples_ms.get(arm) for r in cohort.rounds],
        "brackets_ms": [r.brackets_ms.get(arm) for r in cohort.rounds],
        "rejected": {str(i): r.rejected for i, r in enumerate(accepted) if r.rejected},
        "orders": [r.order for r in cohort.rounds],
        "device_states": cohort.states, "hold_cycles": cohort.hold.cycles,
        "processes": cohort.processes[arm], "waits_for_the_device": arm in cohort.hold.waiting, "audits": cohort.audits,
    }  # fmt: skip


def _information(cohort: Cohort, arm: str) -> dict[str, Any]:
    """Figures that no rank rests on."""
    found: dict[str, Any] = {}
    if samples := cohort.warm_ms.get(arm):
        found["warm_ms"], found["warm_samples_ms"] = median(samples), samples
    if arm in cohort.peak_bytes:
        found["peak_bytes"] = cohort.peak_bytes[arm]
    if trials := cohort.trials.get(arm):
        found["suspected"] = [{**vars(evidence), "convicted": evidence.convinces} for evidence in trials]
    if interval := beyond(cohort.rounds, arm, BASELINE):
        found["beyond_device_ms"] = [interval.low, interval.estimate, interval.high]
    steady = cohort.steady.get(arm)
    if isinstance(steady, Steady):
        found["graph_interval_ms"], found["graph_overhead_ms"] = steady.interval_ms, steady.overhead_ms
    elif steady:
        found["graph"] = steady
    return found


def _with_timing(terms: Terms, result: Result, timing: Timing) -> Result:
    """The timing, or the verdict that no correct kernel can be that fast."""
    for work, floor_ms in terms.floors_ms.items():
        if timing.time_ms < floor_ms:
            reason = (
                f"{timing.time_ms:.4g} ms is less than the {floor_ms:.4g} ms that the {work} no correct kernel can do "
                "without take at this device's peak."
            )
            return replace(result, status=Status.CHEATED, reason=reason)
    return replace(result, timing=timing)


def _reproduce(context: Context, candidate: Candidate, case: Case | None) -> str:
    settings = context.settings
    words = ["python", "harness.py", "--problem", _problem_word(context.problem), "--kernel", file_name(candidate)]
    device, _, strict = context.device.name.partition("-")
    words += ["--device", device, *([f"--{strict}"] if strict else []), "--shape", shape_text(context.problem.shape)]
    if case is not None:
        words += ["--case", case.name, "--seed", str(settings.seed)]
    if settings.precision is not None:
        words += ["--precision", settings.precision.value]
    if settings.limits.call_s != Limits().call_s:
        words += ["--timeout", f"{settings.limits.call_s:g}"]
    return shlex.join(words)


def _problem_word(problem: Problem) -> str:
    """What names the problem on the command line: its name where it is shipped, else its path."""
    shipped = problem.path.resolve().parent == PROBLEMS
    return problem.name if shipped else str(problem.path)
