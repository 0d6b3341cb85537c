"""The result of one candidate or baseline at one shape: its dataclass, and its form as a line of runs.jsonl.

`to_line` is the only function that makes lines of runs.jsonl, and `from_line` the only one that parses them.
"""

from __future__ import annotations

import html
import json
import math
import secrets
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, ClassVar

from kernel_harness.checking.verify import Check
from kernel_harness.core import codec
from kernel_harness.core.arms import BASELINE
from kernel_harness.core.precision import Precision, Tolerance
from kernel_harness.core.remark import Remark, RemarkKind, sentences
from kernel_harness.core.status import Status
from kernel_harness.problem.distributions import OWN
from kernel_harness.results.cells import bounds
from kernel_harness.results.measurement import FurtherShape, Measurement
from kernel_harness.timing import intervals
from kernel_harness.timing.intervals import Interval
from kernel_harness.timing.statistics import Timing

# A line of runs.jsonl holds at most _KEPT_LOG characters of a log. The whole log is in a separate file.
_KEPT_LOG = 20_000
_LONGEST_REPR = 200
LONGEST_PRINTED = 4000
"""A result holds at most so many characters of what its candidate printed, the last ones."""
_NOT_TIMED_YET = "The kernel passed its checks; the run ended before the kernel was timed."


class NotARecord(ValueError):
    """The error raised if a line is not a result, or a suite's entry, of the current schema version. Says why."""


class Kind(StrEnum):
    """Whether a result is of a candidate or of a baseline."""

    CANDIDATE = "candidate"
    BASELINE = "baseline"


@dataclass(frozen=True)
class Build:
    """One CUDA library that the candidate's file asked the harness to build.

    `cached` says whether the library came from the build cache. `seconds` is the duration of the build or the look-up.
    """

    name: str
    seconds: float
    cached: bool


@dataclass(frozen=True)
class RunSettings:
    """The settings of a run: what the user chose, or the defaults.

    `seed` is the random seed, unknown to candidates, from which the inputs were drawn. `baseline` is the name of the
    arm that speedups are relative to. `budget_s` limits the seconds spent on timing; None stands for the device's
    default. `rounds`, if not None, fixes the number of timed rounds instead. `quick` says that fewer shapes were
    checked and less time was spent on timing. `allowed_precision` is the coarsest number format in which the user
    allowed kernels to compute, or None for that of the outputs. `tolerance` is how far float32 outputs may differ from
    the right values. `limits` has the limits of a worker process by name, in the units that the names say. `cases` has
    the names of all cases that the run planned. `kernels` is the number of kernels that the run was to judge at each
    shape; 0 if unknown. `require_own_kernels` is the least percentage of the work that a kernel's own CUDA kernels
    must do for a rank; None for no such rule.
    """

    seed: int = 0
    baseline: str = BASELINE
    budget_s: float | None = None
    rounds: int | None = None
    quick: bool = False
    allowed_precision: Precision | None = None
    tolerance: Tolerance | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    cases: tuple[str, ...] = ()
    kernels: int = 0
    require_own_kernels: float | None = None


@dataclass(frozen=True, repr=False)
class Result:
    """The verdict on one candidate or baseline, timed at one shape, with everything that was measured.

    `kernel` is the name of the candidate or baseline, and `title` its description in one line. `verdict` says why it
    failed, or why it was not timed; it is empty for other results. `remarks` is what explainers said after the verdict.
    `shape` has the size constants of the problem (`M`, `N`, ...) by name. `source_sha256` is the hash of the
    candidate's file, empty for a baseline. `run` is the id of the run, and `measured_at` the time of the result in UTC.
    `checks` has the outcome of each check, also at other shapes. `timing` is None without a time, and `measurement` is
    None if no cohort timed the kernel. `as_called` has the times of calls that the device does not wait for: they
    contain launch latency, and no rank depends on them. `further` has one value for each further shape of the run, in
    their order, also if the kernel was not timed there. `restricted_to` has the only shapes that the candidate accepts;
    it is empty if the candidate accepts all shapes that were checked. `phases_s` has the seconds of each phase (such as
    build and check) by name. `first_call_ms` is the time of the first checked call by the judge's clock. `log` is the
    log of a failure: the compiler's output or a traceback. `printed` is the end of what the candidate printed while it
    was built and checked, in Python and in kernels. `interim` says that the candidate has passed its checks and waits
    to be timed; the final result replaces this one. `lacked_memory` says that the candidate failed while the judge
    found the device short of memory, and that other processes held some of it. `numbers` has the arithmetic operations
    (`flops`) and the bytes to move (`bytes`) of one call, and the limits of the device, as far as they are known. The
    name of a limit is `peak_` (from the data sheet) or `ceiling_` (measured), followed by `bytes_per_s` or `<number
    format>_flops_per_s`. `environment` has facts about the device, the machine and the git checkout. `isolation`
    describes the wall around the worker process. `reproduce` is the shell command that judges this kernel alone; it is
    empty if there is none. Raises ValueError if the result has a time, at any shape, and its status is not PASSED or
    the result is interim.
    """

    schema_version: ClassVar[int] = 5

    kernel: str
    status: Status
    verdict: str
    shape: Mapping[str, int]
    source_sha256: str
    kind: Kind = Kind.CANDIDATE
    title: str = ""
    run: str = ""
    measured_at: str = field(default_factory=lambda: now())
    emulated: bool = False
    isolation: str = ""
    checks: tuple[Check, ...] = ()
    timing: Timing | None = None
    as_called: Timing | None = None
    measurement: Measurement | None = None
    further: tuple[FurtherShape, ...] = ()
    restricted_to: tuple[str, ...] = ()
    phases_s: Mapping[str, float] = field(default_factory=dict)
    builds: tuple[Build, ...] = ()
    first_call_ms: float | None = None
    log: str = ""
    printed: str = ""
    interim: bool = False
    lacked_memory: bool = False
    remarks: tuple[Remark, ...] = ()
    reproduce: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    settings: RunSettings = field(default_factory=RunSettings)

    def __post_init__(self) -> None:
        timed = any(self.timings)
        if timed and self.status is not Status.PASSED:
            raise ValueError(f"{self.kernel} is {self.status} and cannot have a time")
        if timed and self.interim:
            raise ValueError(f"the interim result of {self.kernel} cannot have a time")

    def __repr__(self) -> str:
        """Returns one line: the kernel, its status, its time, and the first line of the reason."""
        time = [f"{self.timing.time_ms:.4g} ms"] if self.timing else []
        reason = [repr(self.reason.partition("\n")[0][:_LONGEST_REPR])] if self.reason else []
        return f"<Result {', '.join([self.kernel, str(self.status), *time, *reason])}>"

    def _repr_html_(self) -> str:
        """Returns a table for a notebook: the status, the time with its interval, the speedup and the reason."""
        rows = {"status": str(self.status), "shape": ", ".join(f"{n}={v}" for n, v in self.shape.items())}
        if self.timing:
            rows["time"] = f"{_interval(self.timing.time)} ms"
            if self.speedup and not self.emulated:
                rows["geometric mean" if self.further else "speedup"] = f"{_interval(self.speedup)}x"
        rows |= {"reason": self.reason, "printed": self.printed, "reproduce": self.reproduce}
        cells = (
            f'<tr><th style="text-align:left">{name}</th>'
            f'<td style="text-align:left;white-space:pre-wrap">{html.escape(text)}</td></tr>'
            for name, text in rows.items()
            if text
        )
        return f"<table><caption>{html.escape(self.kernel)}</caption>{''.join(cells)}</table>"

    @property
    def further_shapes(self) -> tuple[Mapping[str, int], ...]:
        """The shapes at which the run timed kernels after the problem's own size."""
        return tuple(each.shape for each in self.further)

    @property
    def timings(self) -> tuple[Timing | None, ...]:
        """The times at the problem's own size and then at each further shape; None where the kernel was not timed."""
        return self.timing, *(each.timing for each in self.further)

    @property
    def is_timed_everywhere(self) -> bool:
        """Whether the kernel was timed at each timed shape of the run, and on a GPU beside its baseline."""
        return all(timing is not None and (timing.speedup or self.emulated) for timing in self.timings)

    @property
    def speedup(self) -> Interval | None:
        """The geometric mean of the speedups at the timed shapes that have one, or None without any.

        It is comparable with that of another kernel only if both are timed everywhere (`is_timed_everywhere`).
        """
        found = [timing.speedup for timing in self.timings if timing and timing.speedup]
        return intervals.geometric_mean(found) if found else None

    @property
    def own_share(self) -> float | None:
        """The least `Measurement.own_share` at all timed shapes, or None if it is unknown at one."""
        measured = [self.measurement, *(each.measurement for each in self.further if each.timing)]
        shares = [each.own_share for each in measured if each is not None and each.own_share is not None]
        return min(shares) if len(shares) == len(measured) else None

    @property
    def is_excluded(self) -> bool:
        """Whether a timed candidate has no rank, because its own kernels are not known to do the required work."""
        required = self.settings.require_own_kernels
        if required is None or self.is_baseline or self.timing is None:
            return False
        return self.own_share is None or 100 * self.own_share < required

    @property
    def worst(self) -> tuple[Mapping[str, int], Interval] | None:
        """The timed shape with the lowest speedup, and the speedup; None at one shape, and without a speedup."""
        shapes = (self.shape, *self.further_shapes)
        pairs = zip(shapes, self.timings, strict=True)
        found = [(shape, timing.speedup) for shape, timing in pairs if timing and timing.speedup]
        return min(found, key=lambda each: each[1].estimate) if found and self.further else None

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return self.status is Status.PASSED

    @property
    def reason(self) -> str:
        """The verdict and the remarks as one text.

        After a failure each remark is a line of its own. Of a candidate that passed, the remarks come first.
        """
        if self.interim:
            return _NOT_TIMED_YET
        if self.passed:
            return f"{sentences(self.remarks)} {self.verdict}".strip()
        return "\n".join([self.verdict, *(remark.sentence for remark in self.remarks)])

    @property
    def is_baseline(self) -> bool:
        """Whether this is the result of a baseline and not of a candidate."""
        return self.kind is Kind.BASELINE

    @property
    def device(self) -> str:
        """The name of the device that was under test, or "unknown"."""
        return str(self.environment.get("device", "unknown"))

    @property
    def precision(self) -> Precision | None:
        """The coarsest number format in which, as its rounding errors show, the kernel computes.

        None if no check recognised a number format by the errors of the outputs.
        """
        shown = [c.precision for c in self.checks if c.precision is not None]
        return max(shown, key=lambda p: p.epsilon, default=None)

    @property
    def max_abs_error(self) -> float | None:
        """The largest absolute error of an output, or None if it was not measured.

        The value is that of the check at the timed shape with inputs from the problem's own distribution. Of a result
        that failed a check, it is that of this check.
        """
        failed = next((c for c in reversed(self.checks) if not c.passed), None)
        if failed is not None or not self.passed:
            return failed.max_abs_error if failed else None
        own = (c for c in self.checks if c.distribution == OWN and dict(c.shape) == dict(self.shape))
        return next((c.max_abs_error for c in own if c.max_abs_error is not None), None)

    @property
    def relative_error(self) -> float | None:
        """The largest relative error of all checks, in the Frobenius norm, or None if no check measured it."""
        return max((c.relative_error for c in self.checks if c.relative_error is not None), default=None)

    @property
    def findings(self) -> tuple[Remark, ...]:
        """What the sanitizer has found in the kernel."""
        return tuple(remark for remark in self.remarks if remark.kind is RemarkKind.SANITIZER)

    @property
    def shapes_checked(self) -> int:
        """The number of different shapes at which the kernel was checked."""
        return len({tuple(c.shape.items()) for c in self.checks})

    @property
    def build_s(self) -> float | None:
        """The sum of the durations of all builds in seconds, or None if there were no builds."""
        return sum(build.seconds for build in self.builds) if self.builds else None


def _interval(found: Interval) -> str:
    within = bounds(found, "{:.4g}".format, " to ")
    return f"{found.estimate:.4g} ({within})" if within else f"{found.estimate:.4g}"


def without_emulated_speedup(result: Result) -> Result:
    """Returns the result without its speedup if the device is emulated: the ratio says nothing about a GPU.

    Records of the command keep the ratio, because `compare` computes the change between two emulated runs from it.
    """
    if not result.emulated or result.timing is None:
        return result

    def bare(timing: Timing | None) -> Timing | None:
        return timing and replace(timing, speedup=None)

    further = tuple(replace(each, timing=bare(each.timing)) for each in result.further)
    return replace(result, timing=bare(result.timing), further=further)


def at_each_shape(result: Result) -> list[Result]:
    """Returns the result as one result at the problem's own size and one at each further shape of the run.

    The reason why a kernel that passed has no time at a further shape is the `verdict` there.
    """
    own = replace(result, further=(), verdict="" if result.timing else result.verdict)
    return [own, *(
        replace(
            own, shape=each.shape, timing=each.timing, measurement=each.measurement, as_called=each.as_called,
            numbers=each.numbers, verdict=each.untimed if result.passed else result.verdict,
        )
        for each in result.further
    )]  # fmt: skip


def interrupted(run: Sequence[Result]) -> bool:
    """Returns whether a run was interrupted. `run` has all stored results of the run, from old to new.

    A run was interrupted if the last result of a kernel at a shape is an interim result, or if at one of its shapes the
    results of kernels are missing.
    """
    last = {(result.kernel, tuple(result.shape.items())): result for result in run if not result.is_baseline}
    planned = max((result.settings.kernels for result in run), default=0)
    fewest = min(Counter(shape for _, shape in last).values(), default=0)
    return fewest < planned or any(result.interim for result in last.values())


def to_line(result: Result) -> str:
    """Returns the result as one line of JSON, without a line break. The log is cut after 20,000 characters.

    The line also has the `reason`, which follows from other fields, for programs that read the line.
    """
    line = {"schema_version": Result.schema_version, **asdict(result), "log": result.log[:_KEPT_LOG]}
    line["reason"] = result.reason
    return json.dumps(_strict(line), default=str, allow_nan=False)


def from_line(line: str) -> Result:
    """Returns the Result in a line that `to_line` wrote, in the present schema version.

    Raises NotARecord for any other line.
    """
    found: Result = parsed(line, Result, Result.schema_version, derived=["reason"])
    return found


def parsed(line: str, kind: type, schema_version: int, derived: Collection[str] = ()) -> Any:
    """Returns the value of the dataclass `kind` from a line of JSON, whose key `schema_version` must have that value.

    The keys in `derived` follow from the others, and are not read. Raises NotARecord for any other line.
    """
    try:
        fields = json.loads(line)
    except ValueError:
        raise NotARecord("cut short, or not JSON") from None
    if not isinstance(fields, dict) or fields.pop("schema_version", None) != schema_version:
        raise NotARecord(f"not of schema version {schema_version}")
    try:
        return codec.reader(kind)({key: value for key, value in fields.items() if key not in derived})
    except codec.Malformed as error:
        raise NotARecord(str(error)) from None


def _strict(value: Any) -> Any:
    """Returns a copy of `value` in which "nan", "inf" and "-inf" replace the numbers that JSON cannot express.

    Lists and mappings are converted recursively.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _strict(each) for key, each in value.items()}
    return [_strict(each) for each in value] if isinstance(value, (list, tuple)) else value


def now() -> str:
    """Returns the current time in UTC as ISO 8601 text, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def new_run_id() -> str:
    """Returns a new id for a run. It begins with the UTC date and time, so ids sort by time."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
