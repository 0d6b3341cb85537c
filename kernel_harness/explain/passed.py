"""Remarks on a candidate that passed: what was not checked, what a library does, and how its times are to be read."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from kernel_harness.checking.cases import Case
from kernel_harness.core.arms import BASELINE
from kernel_harness.core.remark import Remark, RemarkKind
from kernel_harness.diagnostics.sanitizer import sanitize
from kernel_harness.explain import registers
from kernel_harness.problem.distributions import PARAMETERS
from kernel_harness.timing.intervals import HALF_WIDTH
from kernel_harness.timing.measurements import Measurements
from kernel_harness.timing.statistics import Timing
from kernel_harness.trial.trial import Trial
from kernel_harness.workers.fork_server import ForkServer

LEAST_SHARE = 0.1
"""If the candidate's own kernels do a smaller share of the work, from 0 to 1, a remark says so.

If torch only prepares memory, the candidate's kernels do far more of the work. A kernel that the candidate launches
only for show does far less.
"""

_INTERPRETED = "Triton's interpreter ran the kernels on the CPU, so a race between programs is not found."
_NEUTRAL = (
    "these parameters of the reference were checked at their initial values only, so a kernel that ignores them would "
    "pass: {}."
)
_UNORDERED = (
    "the kernels do not wait for the stream of their inputs, or the stream of the outputs does not wait for them, so "
    "the time is the longest that the judge's clock leaves possible, and contains the launch. Launch them on "
    "at::cuda::getCurrentCUDAStream()."
)
_HARDLY_VERIFIED = (
    "the judge's clock hardly verifies the device's here, so the time is the longest that the judge's clock leaves "
    "possible. A longer --budget verifies better, up to what the clock can resolve."
)
_NOT_SANITIZED = "races and accesses outside of memory were not looked for, which takes longer here: {}"
_SANITIZED_S = 3.0
_TINY = 16
# Regular expressions for lines whose effect the emulation leaves out, and what a remark says of such a line.
_NOT_EMULATED = {
    r"^\s*@torch\.compile\b|^[^#]*\btorch\.compile\(": "uses torch.compile, which runs with the backend aot_eager, "
    "since there is no GPU.",
    r"^[^#]*use_fast_math": "passes --use_fast_math, which the emulation ignores: a GPU's coarser functions were not "
    "judged.",
}


def on_trial(trial: Trial, *, emulated: bool) -> list[Remark]:
    """Returns the remarks on a candidate that passed its checks on a device that is or is not `emulated`."""
    found = on_source(trial.candidate.source, trial.launches, trial.own_share, emulated=emulated)
    found += [Remark(RemarkKind.DEVICE, f"not reached by any check: {sentence}") for sentence in trial.lacking]
    if emulated and trial.candidate.imports_triton:
        found.append(Remark(RemarkKind.DEVICE, _INTERPRETED))
    if trial.checks and all(check.unchecked for check in trial.checks):
        found.append(Remark(RemarkKind.CHECKS, f"{trial.checks[0].unchecked}."))
    problem = trial.reference.problem
    checked = problem.parameters if any(c.distribution == PARAMETERS for c in trial.checks) else ()
    neutral = {name: value for name, value in problem.neutral_state.items() if name not in checked}
    if neutral:
        initial = ", ".join(f"{name} ({value:g})" for name, value in neutral.items())
        found.append(Remark(RemarkKind.CHECKS, _NEUTRAL.format(initial)))
    return found


def on_memory(
    trial: Trial, cases: Sequence[Case], fork_server: ForkServer, seed: int, device: str, command: str
) -> list[Remark]:  # fmt: skip
    """Returns what the sanitizer finds in a compiled kernel that passed, on the `device` "cpu" within _SANITIZED_S.

    A race or a read past the end need not show in the outputs. The kernel runs at a small shape of `cases`, then at the
    timed one, with threads in their usual order. If neither ends in time, a remark has the `command` that sanitizes it.
    `seed` is that of the run. For "cpu", several threads may call this function at a time. Raises EnvironmentLacking if
    a GPU's sanitizer is not installed.
    """
    if not trial.builds:
        return []
    job = sanitize.Job(trial.reference.problem, trial.candidate, _telling(cases), orders=False, within_s=_SANITIZED_S)
    if device == "cpu":
        found = sanitize.remark(fork_server, job, seed, trial.tell)
    else:
        found = sanitize.remark_on_gpu(fork_server, device, job, trial.tell)
    if found is None:
        found = registers.remark(trial.candidate.source)
        return [replace(found, kind=RemarkKind.SANITIZER)] if found else []
    stopped = found.kind is RemarkKind.CHECKS
    return [Remark(RemarkKind.CHECKS, _NOT_SANITIZED.format(command)) if stopped else found]


def _telling(cases: Sequence[Case]) -> list[Case]:
    """Returns the case with the fewest elements of inputs that is not tiny, and then one at the timed shape.

    A tiny shape, such as a single element, has too few threads for a race.
    """
    shapes = sanitize.one_per_shape(cases, only=False)
    sized = [case for case in shapes if min((n for n in _sizes(case)), default=0) >= _TINY]
    small = min(sized, key=lambda case: math.prod(_sizes(case)), default=shapes[0])
    return list(dict.fromkeys([small, *(case for case in shapes if case.timed_shape)]))


def _sizes(case: Case) -> list[int]:
    return [size for _, size in case.shape if isinstance(size, int)]


def on_source(source: str, launches: int | None, own_share: float | None, *, emulated: bool) -> list[Remark]:
    """Returns the remarks on a candidate: a library does the work, or torch.compile runs with another backend.

    `source` is the text of the candidate's file. `launches` is the number of the candidate's own kernels that one call
    launches. `own_share` is the share of the work that these kernels do, from 0 to 1; a library may do the work if it
    is below LEAST_SHARE. With `emulated`, it is the share of the output's elements, otherwise of the time on a GPU.
    `launches` and `own_share` are None if unknown.
    """
    found = []
    if launches == 0:
        text = "the candidate launched no kernel of its own; a library does the work."
        found.append(Remark(RemarkKind.LIBRARY, text))
    elif own_share is not None and own_share < LEAST_SHARE:
        found.append(Remark(RemarkKind.LIBRARY, _little_work(own_share, emulated)))
    for pattern, what in _NOT_EMULATED.items() if emulated else ():
        if number := next((i for i, line in enumerate(source.split("\n"), 1) if re.search(pattern, line)), None):
            found.append(Remark(RemarkKind.DEVICE, f"line {number} {what}", number))
    return found


def on_times(timing: Timing, cohort: Measurements, name: str) -> list[Remark]:
    """Returns the remarks on the times of the arm `name`: which clock counts, and whether they depend on the inputs."""
    texts = []
    if cohort.arms[name].unordered:
        texts.append(_UNORDERED)
    elif (reported_ms := cohort.reported_by_device_ms(name)) is not None:
        texts.append(
            f"the device's clock measured {reported_ms:.4g} ms, but the judge's clock shows that a call takes longer. "
            "The time is the longest that the judge's clock leaves possible."
        )
    elif not timing.verified:
        texts.append(_HARDLY_VERIFIED)
    if (spread := cohort.spread_of_places(name, BASELINE)) > HALF_WIDTH:
        texts.append(
            f"the speedup over torch changes by up to {spread:.1%} with the place of outputs and temporary memory on "
            "the GPU; its interval contains that."
        )
    if longer := cohort.slower_on_other_inputs(name):
        texts.append(
            f"on inputs of other distributions, a call takes {longer:.2g} times as long, relative to torch, as on the "
            "problem's own."
        )
    return [Remark(RemarkKind.TIME, text) for text in texts]


def _little_work(own_share: float, emulated: bool) -> str:
    if emulated:
        same = f"{1 - own_share:.2%} of the output is the same without the candidate's own kernels"
        return f"{same}; a library may do the work."
    share = f"{own_share:.2%}" if own_share >= 1e-4 else "less than 0.01%"
    return f"the candidate's own kernels take {share} of the time on the GPU; a library does the rest."
