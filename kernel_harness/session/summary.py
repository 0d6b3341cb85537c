"""Turns trials and the measurements of cohorts into Results, without using any worker process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from kernel_harness.checking.cases import Case
from kernel_harness.checking.lower_bound import LowerBound
from kernel_harness.core.arms import BASELINE
from kernel_harness.core.remark import Remark, RemarkKind
from kernel_harness.core.status import Status
from kernel_harness.device import Device, Steady
from kernel_harness.explain import passed
from kernel_harness.problem.problem import Problem, Shape, shape_text
from kernel_harness.results.measurement import FurtherShape, Measurement
from kernel_harness.results.record import LONGEST_PRINTED, Build, Kind, Result, RunSettings
from kernel_harness.session.reproduce import command
from kernel_harness.session.settings import Settings
from kernel_harness.timing.clock import FEW_ROUNDS_MS, HARDLY_VERIFIED, unseen_by_device, verified_to_ms
from kernel_harness.timing.measurements import Measurements
from kernel_harness.timing.statistics import Round, Timing, any_counts, summarize
from kernel_harness.trial.trial import State, Trial
from kernel_harness.workers.faults import Fault


@dataclass(frozen=True)
class RunFacts:
    """The facts that every result of a run contains.

    `problem` has the size constants (`M`, `N`, ...) at which candidates are timed, and each candidate is checked on all
    `cases`. `kernels` is the number of kernels that the run is to judge. `problem_remarks` names wrong answers that the
    checks of the problem accept, and a large error of the reference; every result that passed has these remarks.
    `lower_bound` holds the bytes that every correct kernel moves; None if they were not derived. `further` has the
    shapes at which candidates are timed after the problem's own size.
    """

    problem: Problem
    device: Device
    settings: Settings
    cases: Sequence[Case]
    environment: Mapping[str, Any]
    isolation: str
    run: str = ""
    kernels: int = 0
    problem_remarks: tuple[Remark, ...] = ()
    lower_bound: LowerBound | None = None
    further: tuple[Shape, ...] = ()

    @cached_property
    def numbers(self) -> dict[str, float]:
        """Returns the problem's work and the device's peak and measured rates, by name; empty for an emulated device.

        The numbers are for display. Work is in bytes or floating-point operations. Peaks (from the data sheet) and
        ceilings (measured) are per second. `least_ms` is the longest of `bounds_ms`.
        """
        if self.device.emulated:
            return {}
        peaks, ceilings = self.device.peaks(), self.device.ceilings()
        found = {
            "flops": self.problem.number("flops"), "bytes": self.problem.number("bytes_moved"),
            "peak_bytes_per_s": peaks and peaks.bytes_per_s, "ceiling_bytes_per_s": ceilings.get("bytes_per_s"),
            **{f"peak_{name}_flops_per_s": rate for name, rate in (peaks.flops_per_s if peaks else {}).items()},
            **{f"ceiling_{name}": rate for name, rate in ceilings.items()},
            "least_ms": max(self.bounds_ms.values(), default=None),
        }  # fmt: skip
        return {name: number for name, number in found.items() if number}

    @cached_property
    def bounds_ms(self) -> dict[str, float]:
        """Returns the least times in ms that a correct kernel needs on this device, by a text that describes the work.

        They come from the numbers that the problem file states, and from `lower_bound`. The dict is empty if the
        device's peaks are not known.
        """
        peaks, derived = self.device.peaks(), self.lower_bound
        if peaks is None:
            return {}
        least = (
            ("bytes", self.problem.number("min_bytes"), peaks.bytes_per_s),
            ("operations", self.problem.number("min_flops"), peaks.fastest_flops_per_s),
            ("bytes", derived and derived.beyond(self.environment.get("l2_bytes", 0)), peaks.bytes_per_s),
        )
        return {f"{number:.4g} {what}": 1e3 * number / peak for what, number, peak in least if number}

    @cached_property
    def recorded_settings(self) -> RunSettings:
        """Returns the settings in the form in which each result contains them."""
        s = self.settings
        return RunSettings(
            seed=s.seed,
            baseline=s.baseline,
            budget_s=s.budget_s,
            rounds=s.rounds,
            quick=s.quick,
            allowed_precision=s.precision,
            tolerance=self.problem.tolerance(torch.float32),
            limits={name: value for name, value in vars(s.limits).items() if value is not None},
            cases=tuple(case.name for case in self.cases),
            kernels=self.kernels,
            require_own_kernels=s.require_own_kernels,
        )

    def result(self, kernel: str, status: Status, verdict: str, sha256: str, **more: Any) -> Result:
        """Builds a Result of this run. `more` holds values for other fields of Result."""
        return Result(
            kernel, status, verdict, dict(self.problem.shape), sha256, run=self.run, emulated=self.device.emulated,
            isolation=self.isolation, numbers=self.numbers, environment=self._present_environment(),
            settings=self.recorded_settings, further=tuple(FurtherShape(dict(shape)) for shape in self.further), **more,
        )  # fmt: skip

    def _present_environment(self) -> Mapping[str, Any]:
        """Returns the environment, with the key `shares`: which memory the judge shares with workers at this moment.

        The value may change when a worker starts: if the worker cannot map memory of the device, host memory is shared.
        """
        shares = self.device.shares
        return self._environments.setdefault(shares, {**self.environment, "shares": shares})

    @cached_property
    def _environments(self) -> dict[str, Mapping[str, Any]]:
        """The environments that results contain, by the value of `shares`. Results with an equal value share a dict."""
        return {}


def of_trial(facts: RunFacts, trial: Trial) -> Result:
    """Builds the Result of a trial as it is now: an interim one without remarks if the trial waits to be timed."""
    shapes, fault = dict.fromkeys(shape_text(check.shape) for check in trial.checks), trial.fault
    interim = trial.state is State.WAITING
    remarks = [] if interim else trial.remarks
    if fault is None and not interim:
        remarks = [*remarks, *passed.on_trial(trial, emulated=facts.device.emulated), *facts.problem_remarks]
    result = facts.result(
        trial.name,
        trial.status,
        fault.reason if fault else "",
        trial.candidate.sha256,
        title=trial.candidate.title,
        checks=tuple(trial.checks),
        restricted_to=tuple(shapes) if trial.refused else (),
        phases_s={"queue": trial.queue_s, "build": trial.build_s, "check": trial.check_s},
        builds=tuple(Build(**build) for build in trial.builds),
        first_call_ms=trial.first_call_ms,
        log=fault.log if fault else "",
        printed=trial.printed[-LONGEST_PRINTED:],
        lacked_memory=fault is not None and fault.lacked_memory,
        remarks=tuple(remarks),
        reproduce=command(
            trial.reference.problem, facts.device, facts.settings, trial.candidate, trial.failed_case, facts.further
        ),
        interim=interim,
    )
    if trial.measured is not None:
        result = timed(facts, result, trial.measured, trial.scale_ms, trial.timing_s)
        share = 0.0 if trial.launches == 0 else trial.own_share
        result = replace(result, measurement=result.measurement and replace(result.measurement, own_share=share))
    return left_untimed(result, trial.untimed) if trial.untimed else result


def by_the_rules(result: Result) -> Result:
    """Returns a final result, whose verdict says so if the kernel has no rank because of its own kernels' share."""
    if not result.is_excluded:
        return result
    share = "an unknown share" if result.own_share is None else f"{result.own_share:.1%}"
    why = f"The kernel has no rank: its own kernels do {share} of the work, and "
    why += f"{result.settings.require_own_kernels:g}% are required (--require-own-kernels)."
    return replace(result, verdict=f"{result.verdict} {why}".strip())


def of_baseline(facts: RunFacts, name: str) -> Result:
    """Builds the Result of the baseline `name`, without a time."""
    title = "the reference, run eagerly" if name == BASELINE else f"the reference by {name}"
    return facts.result(name, Status.PASSED, "", "", kind=Kind.BASELINE, title=title)


def timed(facts: RunFacts, result: Result, cohort: Measurements, scale_ms: float | None, seconds: float) -> Result:
    """Returns the result of an arm with its measurements, its time and its fault in `cohort` added.

    `scale_ms` is the time of the baseline "torch" in the first cohort, in ms; None before it is known. `seconds` is the
    time that it took to time the cohort.
    """
    rounds = cohort.accepted
    arm = cohort.arms[result.kernel]
    if not arm.trusted:
        result = replace(result, phases_s={**result.phases_s, "timing": seconds})
    if arm.fault is not None:
        result = failed(result, arm.fault)
    result = replace(result, measurement=_measurement(cohort, rounds, arm.name))
    own = [r for r in rounds if arm.name in r.samples_ms]
    if arm.fault is None and any_counts(own):
        against, scale = (_in_counted_rounds(own, name) for name in (result.settings.baseline, BASELINE))
        resolution_ms = cohort.resolution_between(arm.name, against or BASELINE)
        timing = summarize(rounds, arm.name, against, scale=scale, scale_ms=scale_ms, resolution_ms=resolution_ms)
        if result.emulated:  # nothing is ranked by these times: a ratio to torch would only add the noise of torch
            timing = replace(timing, time=summarize(rounds, arm.name, None, resolution_ms=resolution_ms).time)
        if not arm.trusted and not result.emulated:
            timing = _as_verified(timing, result.measurement, alone=cohort.is_timed_by_judge_alone(arm.name))
        result = _with_timing(facts.bounds_ms, result, timing)
        if result.passed and not result.emulated:
            remarks = (*result.remarks, *passed.on_times(timing, cohort, arm.name))
            result = replace(result, remarks=remarks, as_called=_as_called(cohort, arm.name, result.settings.baseline))
        return result
    why = cohort.broken.reason if cohort.broken else _why_none(own)
    return left_untimed(result, why) if why and result.passed else result


def _as_called(cohort: Measurements, name: str, baseline: str) -> Timing | None:
    """Returns the Timing of an arm's calls with launch latency, or None if it is not or hardly verified.

    It is at its upper end if the judge's clock contradicts the device's.
    """
    rounds = [r for r in cohort.accepted_as_called if name in r.samples_ms]
    if _in_counted_rounds(rounds, name) is None:
        return None
    timing = summarize(rounds, name, _in_counted_rounds(rounds, baseline))
    alone = timing.samples_ms != tuple(r.samples_ms[name] for r in cohort.as_called if name in r.samples_ms)
    verified_ms = verified_to_ms(cohort.as_called, name, BASELINE, on_host=True, alone=alone) or FEW_ROUNDS_MS
    if alone:
        return timing.at_upper_end(verified_ms)
    return timing if verified_ms <= HARDLY_VERIFIED * timing.time_ms else None


def _as_verified(timing: Timing, measurement: Measurement | None, *, alone: bool) -> Timing:
    """Returns the timing of a candidate, at its upper end if two clocks do not, or hardly, verify it.

    The judge's clock alone may time a candidate (`alone`), because its work lies outside of the device's events.
    """
    verified_ms = measurement.verified_to_ms if measurement else None
    if verified_ms is None or (not alone and verified_ms <= HARDLY_VERIFIED * timing.time_ms):
        return timing
    return timing.at_upper_end(verified_ms)


def failed(result: Result, fault: Fault) -> Result:
    """Returns the result with the status, the reason and the log of `fault`, and whether memory was short.

    What the sanitizer has found stays: a race that gave a right output in the checks may be why a timed call is wrong.
    """
    return replace(
        result, status=fault.status, verdict=fault.reason, log=fault.log, lacked_memory=fault.lacked_memory,
        remarks=result.findings,
    )  # fmt: skip


def at_further_shape(result: Result, there: Result) -> Result:
    """Returns a result with what was measured at one of its further shapes, whose own result is `there`.

    A kernel that failed there has failed. Remarks on its time there are added if it has none of their kind.
    """
    where = shape_text(there.shape)
    if seconds := there.phases_s.get("timing"):
        result = replace(result, phases_s={**result.phases_s, f"timing at {where}": seconds})
    if not there.passed:
        reason = f"At the further shape {where}: {there.verdict}"
        bare = replace(
            result, timing=None, as_called=None, further=tuple(FurtherShape(each.shape) for each in result.further)
        )
        return failed(bare, Fault(there.status, reason, there.log, lacked_memory=there.lacked_memory))
    measured = FurtherShape(there.shape, there.timing, there.verdict, there.measurement, there.as_called, there.numbers)
    kinds = {RemarkKind.TIME, RemarkKind.LIBRARY} - {remark.kind for remark in result.remarks}
    remarks = (replace(r, text=f"at {where}, {r.text}") for r in there.remarks if r.kind in kinds)
    verdict = f"{result.verdict} At {where}: {there.verdict}".strip() if there.verdict else result.verdict
    further = tuple(measured if each.shape == there.shape else each for each in result.further)
    return replace(result, verdict=verdict, remarks=(*result.remarks, *remarks), further=further)


def left_untimed(result: Result, why: str) -> Result:
    """Returns the result with `why`, the reason for the missing time. The status stays."""
    return replace(result, verdict=f"The kernel was not timed: {why}")


def _why_none(rounds: Sequence[Round]) -> str:
    """Returns a text that says that all `rounds` were rejected, and why the last one was; empty without rounds."""
    if not rounds:
        return ""
    return (
        f"all {len(rounds)} timing rounds were rejected; the reason for the last one: {rounds[-1].rejected}. Run the "
        "kernel again while no other program uses the machine."
    )


def _in_counted_rounds(rounds: Sequence[Round], name: str) -> str | None:
    """Returns `name` if a round that counts contains the arm of that name, else None."""
    return name if any_counts(rounds, name) else None


def _with_timing(bounds_ms: Mapping[str, float], result: Result, timing: Timing) -> Result:
    """Returns the result with `timing` added, or with the status CHEATED if no correct kernel can be that fast."""
    work, bound_ms = max(bounds_ms.items(), key=lambda each: each[1], default=("", 0.0))
    if timing.time_ms >= bound_ms:
        return replace(result, timing=timing)
    verdict = (
        f"The time of {timing.time_ms:.4g} ms cannot be right: every correct kernel needs at least {work}, which take "
        f"{bound_ms:.4g} ms at this device's peak."
    )
    return replace(result, status=Status.CHEATED, verdict=verdict, remarks=())


def _measurement(cohort: Measurements, accepted: Sequence[Round], name: str) -> Measurement:
    """Builds the part of a result that holds the raw measurements of the arm `name`.

    The times are those of `cohort.rounds`. `accepted` is `cohort.accepted`: the same rounds, with rejected rounds
    marked. Only the marks of `accepted` are used.
    """
    arm, alone = cohort.arms[name], cohort.is_timed_by_judge_alone(name)
    graph = arm.steady if isinstance(arm.steady, Steady) else None
    return Measurement(
        warmup_ms=tuple(r.samples_ms.get(name) for r in cohort.warmup),
        own_clock_ms=tuple(r.samples_ms.get(name) for r in cohort.rounds),
        brackets_ms=tuple(r.brackets_ms.get(name) for r in cohort.rounds),
        rejected=tuple(r.rejected for r in accepted),
        orders=tuple(r.order for r in cohort.rounds),
        distributions=tuple(r.distribution for r in cohort.rounds),
        device_states=cohort.states,
        processes=arm.processes,
        waits_for_the_device=arm.waits_for_device,
        unordered=arm.unordered,
        audits=cohort.audits,
        beyond_device_ms=unseen_by_device(cohort.rounds, name, BASELINE, on_host=arm.begins_on_host),
        verified_to_ms=verified_to_ms(cohort.rounds, name, BASELINE, on_host=arm.begins_on_host, alone=alone),
        warm_samples_ms=arm.warm_ms,
        graph_interval_ms=graph.interval_ms if graph else None,
        graph_overhead_ms=graph.overhead_ms if graph else None,
        graph_failure=arm.steady if isinstance(arm.steady, str) else "",
        peak_bytes=arm.peak_bytes,
        energy_samples_j=arm.energy_j,
    )
