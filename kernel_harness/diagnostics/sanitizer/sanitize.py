"""Sanitizes a candidate: finds memory errors and races, each with its line. Gives no verdict and no time."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import reduce

from cuda_on_cpu.compile.errors import BuildFailed, NoCompiler
from cuda_on_cpu.core.tell import Tell, silent
from cuda_on_cpu.emulator.findings import Finding, Kind, Place, causes_first, read, source_line
from cuda_on_cpu.emulator.source_lines import places
from kernel_harness import device as devices
from kernel_harness.checking.cases import Case, Reference, plan
from kernel_harness.checking.verify import same
from kernel_harness.core.errors import EnvironmentLacking, UserError
from kernel_harness.core.remark import Remark, RemarkKind
from kernel_harness.core.status import Status
from kernel_harness.diagnostics.sanitizer import TOOLS, compute_sanitizer
from kernel_harness.diagnostics.sanitizer.advice import advice
from kernel_harness.ipc import messages
from kernel_harness.ipc.packed import Packed
from kernel_harness.problem.candidate import Candidate, file_name
from kernel_harness.problem.problem import Problem, Shape
from kernel_harness.workers.faults import Fault, Refused
from kernel_harness.workers.fork_server import ForkServer
from kernel_harness.workers.process import Limits
from kernel_harness.workers.worker_client import Answer, WorkerClient

_LOG = logging.getLogger(__name__)
# Orders in which the emulator runs blocks and threads. A number from 2 on is the seed of a random order.
FORWARD, REVERSE = 0, 1
_SHUFFLES = 2
_LIMITS = Limits(call_s=300.0)
_BUILD_S = 8.0  # for a remark; a build takes two to three
REMARK_S = 20.0
"""The seconds for the calls of a remark, which is part of a run that judges other candidates, too."""
# Inputs and models are drawn from generators of the whole process, so one thread draws at a time.
_DRAWING = threading.Lock()
_RUNNING = "running the sanitizer"
_NOT_SANITIZED = "races and accesses outside of memory were not looked for: {}"
_ENDLESS = "look for a loop that never ends here, or a barrier that some threads never reach"
# After a finding of these kinds, further findings are unreliable: threads were ended early, or memory is corrupt.
_DAMAGE = {Kind.OUT_OF_BOUNDS_READ, Kind.OUT_OF_BOUNDS_WRITE, Kind.USE_AFTER_FREE, Kind.DIVERGENT_WARP, Kind.MISALIGNED}
_DECLINES = "the kernel declines every shape that was tried ({}). Choose a shape that it accepts with --shape"


@dataclass
class Report:
    """The result of sanitizing a candidate.

    `findings` has at most one finding for each kind of mistake and line. `cases` has the names of the cases in which a
    call with all checks ended, on a GPU under at least one tool. `fault` says how the candidate's worker failed, or
    that the candidate declined every shape; otherwise it is empty. On the emulated device, a failure of the worker ends
    the run. On a GPU, it ends the run of one tool, and `fault` describes the last failure. `at` is the line at which a
    kernel was when its time was over, on the emulated device; None if it is not known.
    """

    findings: list[Finding] = field(default_factory=list)
    fault: str = ""
    at: Place | None = None
    cases: list[str] = field(default_factory=list)

    def add(self, found: Sequence[Finding]) -> None:
        """Adds those findings in `found` whose kind, file and line no earlier finding of the report has.

        Causes come first in the report.
        """
        known: dict[tuple[Kind, str, int], Finding] = {}
        for f in (*self.findings, *found):
            known.setdefault((f.kind, f.here.file, f.here.line), f)
        self.findings = causes_first([*known.values()])

    def text(self, name: str) -> str:
        """Returns the report as text for the user, one finding a line. `name` is the name of the kernel.

        If there are findings and a fault, the fault is the last line. If there is neither, the text is one line that
        says so. If there is only a fault, the text is empty.
        """
        lines = [f.sentence for f in self.findings]
        if self.fault and self.findings:
            lines.append(f"The call of the kernel failed: {self.fault}")
        if not self.fault and not self.findings:
            shapes = len(self.cases)
            lines.append(f"{name}: nothing found at {shapes} shape{'s' if shapes != 1 else ''}.")
        return "\n".join(lines)


@dataclass(frozen=True)
class Request:
    """A request to sanitize a candidate on a device.

    `device` is the name of the device, such as "cpu" or "cuda:0". `shape` has values for size constants of the problem
    (`M`, `N`, ...), and the candidate runs at these sizes only. Constants that are missing in `shape` have their values
    in the problem's CPU_SHAPE, else the usual ones of the device. If `shape` is empty, the candidate runs at all of
    those usual values, and at the further shapes of the checks. If it is None, the candidate runs at the sizes that the
    problem file sets. `seed` determines the values of the inputs and the random orders of threads. `tools` are the
    tools of compute-sanitizer to run on a GPU; if empty, all of them run.
    """

    problem: Problem
    candidate: Candidate
    device: str
    shape: Shape | None
    seed: int
    tools: Sequence[str] = ()


@dataclass(frozen=True)
class Job:
    """A candidate, its problem, and the cases in which the sanitizer runs it.

    Under emulation, `orders` says whether threads run in other orders, too, if a call with all checks found no damage.
    If `within_s` is not None there, the calls end after so many seconds, and the build after _BUILD_S.
    """

    problem: Problem
    candidate: Candidate
    cases: Sequence[Case]
    orders: bool = True
    within_s: float | None = None


def run(request: Request, fork_server: ForkServer, tell: Tell) -> Report:
    """Sanitizes a candidate as `request` says, and returns the report.

    `tell` is called with a text for the progress display before each step. Raises UserError for tools or a Triton
    kernel on the emulated device, and for sizes that the problem does not allow. Raises EnvironmentLacking if
    compute-sanitizer or a compiler is missing. If nothing was found, also raises EnvironmentLacking if the candidate's
    worker failed or the candidate declined every shape. Raises BuildFailed if the emulator cannot be built.
    """
    device, candidate = devices.named(f"{request.device}-sanitized"), request.candidate
    if device.emulated and request.tools:
        raise UserError(
            "--tool names a tool of compute-sanitizer and needs a GPU. The emulator always looks for all mistakes"
        )
    if device.emulated and candidate.imports_triton:
        raise UserError(
            f"{candidate.name} imports Triton, whose interpreter checks no access. Without a GPU, only kernels in "
            "CUDA C++ can be sanitized"
        )
    # A GPU gets the small shape of the CPU, too, because compute-sanitizer makes calls much slower.
    shape = request.shape and {**request.problem.cpu_shape, **request.shape}
    problem = request.problem.sized(request.problem.cpu_shape if shape == {} else shape, emulated=device.emulated)
    problem.check_inputs()
    job = Job(problem, candidate, one_per_shape(plan(problem, request.seed), only=shape != {}))
    tell("preparing the device")
    device.prepare(tell)
    fork_server.prepare(device.name)
    if device.emulated:
        report = sanitize(fork_server, job, request.seed, tell)
    else:
        report = sanitize_on_gpu(fork_server, device.name, job, tell, request.tools or TOOLS)
    if report.fault and not report.findings:
        raise EnvironmentLacking(f"{candidate.name} cannot be sanitized: {report.fault}")
    return report


def remark(fork_server: ForkServer, job: Job, seed: int, tell: Tell = silent) -> Remark | None:
    """Sanitizes a candidate in some cases on the emulated device. Returns a remark with the first finding.

    Returns None if there is no finding, or if the emulator with its sanitizer cannot be built. The calls are stopped
    after `job.within_s` seconds, which must not be None. If no case has ended until then, the build takes too long, or
    the sanitizer cannot run the kernel, the remark says so. The time to build the sanitizer itself, once per machine,
    does not count. `seed` determines the random orders of threads. `tell` is called with a text for the progress
    display before each step. Several threads may call this function at a time.
    """
    try:
        devices.named("cpu-sanitized").prepare(tell)
    except (BuildFailed, NoCompiler):
        return None
    tell(_RUNNING)
    report = sanitize(fork_server, job, seed, silent)
    if found := _first(report, job.candidate):
        return found
    if report.fault.startswith(Status.UNSUPPORTED):
        return Remark(RemarkKind.DEVICE, _NOT_SANITIZED.format(report.fault.partition(": ")[2]))
    if report.cases or not report.fault.startswith(Status.TIMEOUT):
        return None
    if report.at:
        source = source_line(job.candidate.source.split("\n"), report.at.line)
        text = f"after {job.within_s:g} s the kernel was at {report.at.file}:{report.at.line}: `{source}`."
        return Remark(RemarkKind.CHECKS, text, report.at.line, _ENDLESS)
    text = f"the sanitizer was stopped after {job.within_s:g} s without a finding; the verb sanitize has no such limit."
    return Remark(RemarkKind.CHECKS, text)


def remark_on_gpu(fork_server: ForkServer, device: str, job: Job, tell: Tell) -> Remark | None:
    """Sanitizes a candidate in some cases on the GPU named `device`, such as "cuda:0". Returns the first finding.

    Returns None if there is none. It takes as long as it takes. `tell` is called before with a text for the progress
    display. Raises EnvironmentLacking if compute-sanitizer is not installed.
    """
    tell(_RUNNING)
    name = f"{device}-sanitized"
    devices.named(name).prepare()
    return _first(sanitize_on_gpu(fork_server, name, job, silent), job.candidate)


def _first(report: Report, candidate: Candidate) -> Remark | None:
    if not report.findings:
        return None
    first = report.findings[0]
    in_candidate = first.here.file == file_name(candidate)
    return Remark(RemarkKind.SANITIZER, first.sentence, first.here.line if in_candidate else None, advice(first))


def one_per_shape(cases: Sequence[Case], *, only: bool) -> list[Case]:
    """Returns the first case for each choice of the size constants; if `only`, just the first case at the timed sizes.

    One case for each choice of sizes is enough, because a kernel's memory accesses depend on the sizes, but rarely on
    the values of the inputs. Cases that are optional are left out: the reference may fail at them.
    """
    by_shape: dict[tuple[tuple[str, int], ...], Case] = {}
    for case in cases:
        if not case.optional and (case.timed_shape or not only):
            by_shape.setdefault(case.shape, case)
    return list(by_shape.values())


def sanitize(fork_server: ForkServer, job: Job, seed: int, tell: Tell) -> Report:
    """Runs a candidate in every case of `job` under the emulator's sanitizer. Returns the report.

    If the candidate's worker fails or exceeds its limits, the run ends and the report says how. A case whose shape the
    candidate declines is left out. `seed` determines the random orders of threads, and `tell` is called with a text
    before each case.
    """
    report, candidate, declined = Report(), job.candidate, ""
    reference = Reference(job.problem, "cpu", None)
    limits = replace(_LIMITS, build_s=_LIMITS.build_s if job.within_s is None else _BUILD_S)
    client = WorkerClient(fork_server, "cpu-sanitized", limits)
    try:
        client.load(file_name(candidate), candidate.source, "ModelNew")
        if job.within_s is not None:
            client.end_within(job.within_s)
        for case in job.cases:
            tell(case.name)
            try:
                with _DRAWING:
                    client.make(reference.at(case))
                    reference.inputs(case)
                _Trial(client, reference, case, job).run(report, seed)
            except Refused as refusal:
                declined = str(refusal)
        if not report.cases:
            report.fault = _DECLINES.format(declined)
    except Fault as fault:
        report.fault = f"{fault.status}: {fault.reason}"
        report.at = _place(client, fault.log)
    finally:
        client.close()
    return report


def _place(client: WorkerClient, output: str) -> Place | None:
    """Returns the innermost line of the candidate at which its worker was when it timed out, by what it has printed."""
    known = {str(library): library for library in client.libraries}
    found = re.findall(r"^at (\S+)\+(0x[0-9a-f]{1,16})$", output, re.MULTILINE)
    for library, offset in ((known[name], int(address, 16)) for name, address in found if name in known):
        with suppress(OSError):
            for name, number, _ in places(library, [offset])[offset].frames:
                file, line = client.file.place(name, number)
                if client.file.owns(file):
                    return Place(file, line)
    return None


def sanitize_on_gpu(fork_server: ForkServer, device: str, job: Job, tell: Tell, tools: Sequence[str] = TOOLS) -> Report:
    """Runs a candidate in every case of `job` under each tool of compute-sanitizer. Returns the report.

    If the candidate's worker fails, the run of this tool ends, and the report says how. A case whose shape the
    candidate declines is skipped. `tell` is called with a text before each tool. Raises EnvironmentLacking if
    compute-sanitizer is not installed.
    """
    report, declined = Report(), ""
    reference, candidate = Reference(job.problem, "cpu", None), job.candidate
    variables = devices.named(device).worker_variables()
    name, source = file_name(candidate), candidate.source.split("\n")
    for tool in tools:
        tell(tool)
        with compute_sanitizer.WatchedWorkers(tool, fork_server, variables) as watched:
            client = WorkerClient(watched, device, _LIMITS)
            try:
                declined = _call_each(client, reference, job, report) or declined
            except Fault as fault:
                report.fault = f"{fault.status}: {fault.reason}"
            finally:
                log, printed = watched.log(), client.printed
                client.close()
            _LOG.info("output of %s:\n%s", tool, log)
            report.add(compute_sanitizer.read(client.file.translated(log), name, source, ""))
            report.add(compute_sanitizer.failed_assertions(printed, name, source))
    if not report.cases and not report.fault:
        report.fault = _DECLINES.format(declined)
    return report


def _call_each(client: WorkerClient, reference: Reference, job: Job, report: Report) -> str:
    """Calls the candidate in each case, and adds the case to the report's if the candidate does not decline its shape.

    Returns the reason that the candidate gave for the last shape that it declined, or an empty text.
    """
    declined = ""
    client.load(file_name(job.candidate), job.candidate.source, "ModelNew")
    for case in job.cases:
        try:
            client.make(reference.at(case))
            client.call(reference.inputs(case))
            if case.name not in report.cases:
                report.cases.append(case.name)
        except Refused as refusal:
            declined = str(refusal)
    return declined


@dataclass
class _Trial:
    """One case of a candidate that runs under the emulator's sanitizer. `reference` gives inputs and tolerances."""

    client: WorkerClient
    reference: Reference
    case: Case
    job: Job

    def run(self, report: Report, seed: int) -> None:
        """Calls the candidate with every memory access checked, and adds the findings to `report`.

        Then calls the candidate again with other orders of threads, the reverse one and two random ones, unless the
        first call may have corrupted memory. It is a finding, too, if outputs differ from those of the first call by
        more than the tolerance. `seed` determines the random orders. Raises Fault if the worker fails.
        """
        packed = self.reference.inputs(self.case)
        try:
            first = self._call(packed, FORWARD, checks=True)
        except (Fault, Refused):
            with suppress(Fault):  # the worker may have died in the call, and the fault of the call says how
                report.add(self._findings(None))
            raise
        found = self._findings(None)
        report.add(found)
        report.cases.append(self.case.name)
        if self.job.orders and not any(f.kind in _DAMAGE for f in found):
            report.add(self._in_other_orders(packed, first, seed))

    def _in_other_orders(self, packed: Packed, first: Answer, seed: int) -> list[Finding]:
        for order in (REVERSE, *(2 + (seed + i) % (1 << 32) for i in range(_SHUFFLES))):
            other = self._call(packed, order, checks=False)
            for i, (one, two) in enumerate(zip(first.outputs, other.outputs, strict=False)):
                check = same([one], [two], self.reference.at(self.case).tolerance(one.dtype), self.case.name)
                if check.passed or not check.first_mismatches:
                    continue
                worst = check.first_mismatches[0]
                self._call(packed, FORWARD, checks=True)
                detail = f"element {list(worst.index)} is {worst.expected:.7g}, but {worst.got:.7g}"
                flat = reduce(lambda at, axis: at * axis[1] + axis[0], zip(worst.index, one.shape, strict=False), 0)
                found = self._findings((i, flat))
                return [replace(f, detail=detail, order=order) for f in found if f.kind is Kind.ORDER_DEPENDENCE]
        return []

    def _call(self, packed: Packed, order: int, *, checks: bool) -> Answer:
        self.client.ask(messages.SanitizeNextCall(order, checks), messages.Done)
        return self.client.call(packed)

    def _findings(self, blame: tuple[int, int] | None) -> list[Finding]:
        described = self.client.ask(messages.GetFindings(blame), messages.Recorded)
        found = read(described.content, self.case.name, self.job.candidate.source.split("\n"))
        return [f for f in found if f.kind is not Kind.INPUT_WRITTEN or not self._may_write(f)]

    def _may_write(self, finding: Finding) -> bool:
        """Returns whether a write to an input is one that the reference makes, too. An output may lie in that input."""
        changed = self.reference.expectation(self.case)[1].changed
        named = re.match(r"input (\d+)", finding.buffer.name if finding.buffer else "")
        return int(named[1]) - 1 in changed if named else bool(changed)
