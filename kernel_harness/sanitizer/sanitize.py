"""The verb `sanitize`: a kernel's mistakes, each with its line, thread and buffer. It gives no verdict and no time."""

from __future__ import annotations

import argparse
import json
import logging
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from kernel_harness import device as devices
from kernel_harness import find
from kernel_harness.build.errors import BuildFailed, NoCompiler
from kernel_harness.candidate import Candidate
from kernel_harness.cases import Case, Packed, Reference, plan
from kernel_harness.channel import SharedBuffer
from kernel_harness.errors import EnvironmentLacking, UserError
from kernel_harness.examine import Answer, Fault, Refused, Subject, file_name
from kernel_harness.inputs import buffer_of
from kernel_harness.problem import Problem
from kernel_harness.process import Limits
from kernel_harness.sanitizer import TOOLS, compute_sanitizer
from kernel_harness.sanitizer.findings import Finding, Kind, read
from kernel_harness.spawn import Template
from kernel_harness.verify import same

_LOG = logging.getLogger(__name__)
CLEAN, FOUND = 0, 1
FORWARD, REVERSE = 0, 1
_SHUFFLES = 2
_LIMITS = Limits(call_s=300.0)
# After these, what a kernel does next says nothing: its threads were ended, or its memory is not what it was.
_DAMAGE = {Kind.OUT_OF_BOUNDS_READ, Kind.OUT_OF_BOUNDS_WRITE, Kind.USE_AFTER_FREE, Kind.DIVERGENT_WARP}


@dataclass
class Report:
    """What was found, each mistake once; and the fault that kept the rest from being looked at, if any."""

    findings: list[Finding] = field(default_factory=list)
    fault: str = ""
    cases: list[str] = field(default_factory=list)

    def add(self, found: Sequence[Finding]) -> None:
        """Keeps what is not a mistake already known from another case."""
        known = {(f.kind, f.here.file, f.here.line) for f in self.findings}
        for f in found:
            if (f.kind, f.here.file, f.here.line) not in known:
                self.findings.append(f)
                known.add((f.kind, f.here.file, f.here.line))


def run(options: argparse.Namespace, root: Path, template: Template) -> int:
    """Sanitizes the kernel that the options name and prints what was found. Raises UserError."""
    problem = find.problem(options.problem, root)
    chosen = find.kernels([options.kernel], problem.name, root)
    if len(chosen) != 1:
        raise UserError(f"{options.kernel!r} names {len(chosen)} kernels; sanitize takes one at a time")
    device = devices.named(f"{find.device(options.device).name}-sanitized")
    if device.emulated and options.tool:
        raise UserError("--tool names a tool of compute-sanitizer, which needs a GPU; without it all is looked for")
    timed = problem.at(problem.cpu_shape).at(options.shape)
    seed = options.seed if options.seed is not None else secrets.randbits(32)
    cases = one_per_shape(plan(timed, seed), only=bool(options.shape))
    device.prepare()
    template.prepare(device.name)
    if device.emulated:
        report = sanitize(template, timed, chosen[0], cases, seed, _tell)
    else:
        report = sanitize_on_gpu(template, device.name, timed, chosen[0], cases, _tell, options.tool or TOOLS)
    _print(report, chosen[0], options.json)
    if report.fault and not report.findings:
        raise EnvironmentLacking(f"{chosen[0].name} cannot be sanitized: {report.fault}")
    return FOUND if report.findings else CLEAN


def remark(template: Template, problem: Problem, candidate: Candidate, case: Case, seed: int) -> str:
    """The first finding in one case as a sentence; empty where there is none, or none can be looked for."""
    try:
        devices.named("cpu-sanitized").prepare()
    except (BuildFailed, NoCompiler):
        return ""
    report = sanitize(template, problem, candidate, [case], seed, lambda text: None)
    return report.findings[0].sentence if report.findings else ""


def one_per_shape(cases: Sequence[Case], *, only: bool) -> list[Case]:
    """The first case of each shape: what a kernel touches hangs on the shape, hardly ever on the values."""
    by_shape: dict[tuple[tuple[str, int], ...], Case] = {}
    for case in cases:
        if case.timed_shape or not only:
            by_shape.setdefault(case.shape, case)
    return list(by_shape.values())


def sanitize(
    template: Template, problem: Problem, candidate: Candidate, cases: Sequence[Case], seed: int,
    tell: Callable[[str], None],
) -> Report:  # fmt: skip
    """Builds a candidate for the sanitizer and looks at it in every case. Its faults end up in the report."""
    report = Report()
    reference = Reference(problem, "cpu", None)
    subject = Subject(template, "cpu-sanitized", _LIMITS)
    try:
        subject.sanitize("watch", file=file_name(candidate), source=candidate.source)
        subject.load(file_name(candidate), candidate.source, "ModelNew")
        for case in cases:
            tell(f"{candidate.name}: {case.name}")
            try:
                subject.make(reference.at(case))
                _Trial(subject, reference, case, candidate).run(report, seed)
                report.cases.append(case.name)
            except Refused:
                continue
    except Fault as fault:
        report.fault = f"{fault.status}: {fault.reason}"
    finally:
        subject.close()
    return report


def sanitize_on_gpu(
    template: Template, device: str, problem: Problem, candidate: Candidate, cases: Sequence[Case],
    tell: Callable[[str], None], tools: Sequence[str] = TOOLS,
) -> Report:  # fmt: skip
    """The same by compute-sanitizer, one tool after the other. Raises EnvironmentLacking where it is missing."""
    report = Report(cases=[case.name for case in cases])
    reference = Reference(problem, "cpu", None)
    file, source = file_name(candidate), candidate.source
    for tool in tools:
        tell(f"{candidate.name}: {tool}")
        with compute_sanitizer.Wrapped(tool, template) as wrapped:
            subject = Subject(wrapped, device, _LIMITS)
            try:
                _call_each(subject, reference, candidate, cases)
            except Fault as fault:
                report.fault = f"{fault.status}: {fault.reason}"
            finally:
                log = wrapped.log()
                subject.close()
            _LOG.info("%s says\n%s", tool, log)
            report.add(compute_sanitizer.read(log, file, source.split("\n"), ""))
    return report


def _call_each(subject: Subject, reference: Reference, candidate: Candidate, cases: Sequence[Case]) -> None:
    subject.load(file_name(candidate), candidate.source, "ModelNew")
    for case in cases:
        packed = reference.inputs(case)
        buffer = buffer_of(packed)
        try:
            subject.make(reference.at(case))
            subject.call(packed, buffer)
        except Refused:
            continue
        finally:
            buffer.close()


@dataclass
class _Trial:
    """One case of one candidate."""

    subject: Subject
    reference: Reference
    case: Case
    candidate: Candidate

    def run(self, report: Report, seed: int) -> None:
        """The call as it is, every access looked at; then in other orders, for the same answer."""
        packed = self.reference.inputs(self.case)
        buffer = buffer_of(packed)
        try:
            try:
                first = self._call(packed, buffer, FORWARD, checks=True)
            finally:
                found = self._findings(None)
                report.add(found)
            if not any(f.kind in _DAMAGE for f in found):
                report.add(self._in_other_orders(packed, buffer, first, seed))
        finally:
            buffer.close()

    def _in_other_orders(self, packed: Packed, buffer: SharedBuffer, first: Answer, seed: int) -> list[Finding]:
        for order in (REVERSE, *(2 + (seed + i) % (1 << 32) for i in range(_SHUFFLES))):
            other = self._call(packed, buffer, order, checks=False)
            for i, (one, two) in enumerate(zip(first.outputs, other.outputs, strict=False)):
                check = same([one], [two], self.reference.at(self.case).tolerance(one.dtype), self.case.name)
                if check.passed or not check.first_mismatches:
                    continue
                worst = check.first_mismatches[0]
                self._call(packed, buffer, FORWARD, checks=True)
                detail = f"element {list(worst.index)} is {worst.expected:.7g}, but {worst.got:.7g}"
                found = self._findings([i, _flat(worst.index[: one.dim()], one.shape)])
                return [replace(f, detail=detail, order=order) for f in found if f.kind is Kind.ORDER_DEPENDENCE]
        return []

    def _call(self, packed: Packed, buffer: SharedBuffer, order: int, *, checks: bool) -> Answer:
        self.subject.sanitize("begin", order=order, checks=checks)
        return self.subject.call(packed, buffer)

    def _findings(self, blame: list[int] | None) -> list[Finding]:
        try:
            described = self.subject.sanitize("findings", blame=blame).get("findings")
        except Fault:  # it died in the call, and its own fault says how
            return []
        return read(described, self.case.name, self.candidate.source.split("\n"))


def _tell(text: str) -> None:
    print(text, file=sys.stderr)


def _flat(index: Sequence[int], shape: Sequence[int]) -> int:
    flat = 0
    for i, n in zip(index, shape, strict=True):
        flat = flat * n + i
    return flat


def _print(report: Report, candidate: Candidate, as_json: bool) -> None:
    for f in report.findings:
        print(json.dumps({**asdict(f), "sentence": f.sentence}) if as_json else f.sentence)
    if as_json:
        return
    if report.fault and report.findings:
        print(f"The call itself failed: {report.fault}")
    if not report.findings and not report.fault:
        shapes = len(report.cases)
        print(f"{candidate.name}: nothing found at {shapes} shape{'s' if shapes != 1 else ''}.")
