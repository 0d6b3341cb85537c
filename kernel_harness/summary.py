"""From what was seen to Results: figures summed up, a record's settings and numbers. Nothing is asked here."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any

import torch

from kernel_harness import remarks
from kernel_harness.candidate import Candidate
from kernel_harness.cases import Case
from kernel_harness.clock import beyond
from kernel_harness.device import Device, Steady
from kernel_harness.examine import Finding, file_name
from kernel_harness.paths import PROBLEMS
from kernel_harness.problem import Problem, shape_text
from kernel_harness.process import Limits
from kernel_harness.race import BASELINE, Cohort
from kernel_harness.results import Result
from kernel_harness.settings import Settings
from kernel_harness.status import Status
from kernel_harness.timing import Round, Timing, summarize


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
        reproduce="" if finding.status is Status.PASSED else _reproduce(context, candidate, finding.failed_case),
        numbers=context.numbers,
        information=information,
        environment=context.environment,
        settings=context.recorded_settings,
        run=context.run,
    )


def of_cohort(
    context: Context,
    cohort: Cohort,
    candidates: Mapping[str, tuple[Candidate, Finding]],
    baseline_ms: float | None,
    seconds: float,
) -> Iterator[Result]:
    """The results of those who were timed together. `baseline_ms`: torch's time in the first cohort, where known."""
    rounds = cohort.accepted
    for arm in cohort.arms:
        if not arm.reported:
            continue
        if not arm.trusted:
            candidate, finding = candidates[arm.name]
            if arm.fault is not None:
                finding.status, finding.reason, finding.log = arm.fault.status, arm.fault.reason, arm.fault.log
            result = of_candidate(context, candidate, finding)
            result = replace(result, phases_s={**result.phases_s, "timing": seconds})
        else:
            result = _of_baseline(context, arm.name)
        extra = {**result.settings, **_measured(cohort, arm.name)}
        result = replace(result, settings=extra, information={**result.information, **_information(cohort, arm.name)})
        timed = [r for r in rounds if arm.name in r.samples_ms]
        if arm.fault is None and any(r.rejected is None for r in timed):
            against, scale = (_beside(timed, name) for name in (context.settings.baseline, BASELINE))
            resolution_ms = cohort.resolution_ms(arm.name, against or BASELINE)
            timing = summarize(
                rounds, arm.name, against, scale=scale, scale_ms=baseline_ms, resolution_ms=resolution_ms
            )
            result = _with_timing(context, result, timing)
        yield result


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


def _measured(cohort: Cohort, arm: str) -> dict[str, Any]:
    """What the record holds of the rounds beside the samples that count, so that nothing is dropped silently."""
    return {
        "warmup_ms": [r.samples_ms.get(arm) for r in cohort.warmup],
        "own_clock_ms": [r.samples_ms.get(arm) for r in cohort.rounds],
        "brackets_ms": [r.brackets_ms.get(arm) for r in cohort.rounds],
        "rejected": {str(i): r.rejected for i, r in enumerate(cohort.accepted) if r.rejected},
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


def _with_timing(context: Context, result: Result, timing: Timing) -> Result:
    """The timing, or the verdict that no correct kernel can be that fast."""
    peaks = context.device.peaks()
    for what, number, peak in (
        ("bytes", context.problem.number("min_bytes"), peaks and peaks.bytes_per_s),
        ("operations", context.problem.number("min_flops"), peaks and peaks.fastest_flops_per_s),
    ):
        if number and peak and timing.time_ms < 1e3 * number / peak:
            reason = (
                f"{timing.time_ms:.4g} ms is less than the {1e3 * number / peak:.4g} ms that the {number:.4g} "
                f"{what} no correct kernel can do without take at this device's peak."
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
