"""The profiler: it reports what one warmed-up call of a kernel does. The profiler does not check the outputs."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kernel_harness import device as devices
from kernel_harness.checking.cases import plan
from kernel_harness.compile.candidate_file import CandidateFile
from kernel_harness.core.errors import UserError
from kernel_harness.core.paths import command
from kernel_harness.core.status import Status
from kernel_harness.core.terminal import Terminal
from kernel_harness.device import Device
from kernel_harness.device.profiled import note_of
from kernel_harness.diagnostics.profile import accesses, lines, ncu, show
from kernel_harness.diagnostics.profile.accesses import Recorded
from kernel_harness.diagnostics.profile.resources import Assembled, Launched
from kernel_harness.ipc.packed import pack
from kernel_harness.problem.candidate import Candidate, file_name
from kernel_harness.problem.problem import Problem, shape_text
from kernel_harness.sandbox.faults import Fault, Refused
from kernel_harness.sandbox.fork_server import ForkServer
from kernel_harness.sandbox.process import Limits
from kernel_harness.sandbox.subject import Subject


class CannotProfile(UserError):
    """The error raised if a kernel fails before or during the profiled call. There is no profile then."""

    exit_code = 1


def profile(
    problem: Problem, candidate: Candidate, device: Device, reports: Path, fork_server: ForkServer, screen: Terminal,
    tell: Callable[[str], None],
) -> str:  # fmt: skip
    """Profiles one call of `candidate` at the problem's sizes. Returns the profile as text for the user.

    On the emulated device, the text has tables of the kernel launches, of the kernels' resources and of what each line
    does to memory, and the largest causes of wasted memory traffic. On a GPU, it is the report of Nsight Compute and
    the table of resources. `reports` is the folder where the report files of Nsight Compute are kept. `screen` gives
    the width to which text is wrapped. `tell` is called with a text before each step. Raises UserError, or its subclass
    CannotProfile if the candidate fails.
    """
    problem.check_inputs()
    head = f"{problem.name}, {candidate.name}, {shape_text(problem.shape)}".rstrip(", ")
    if device.emulated:
        if candidate.imports_triton:
            raise UserError(
                f"{candidate.name} imports Triton, whose interpreter counts nothing. Without a GPU, only kernels in "
                "CUDA C++ can be profiled"
            )
        launched, assembled, recorded = counted(problem, candidate, fork_server, tell)
        tables = [*show.tables(launched, assembled, screen), *lines.paragraphs(recorded, screen)]
        return "\n\n".join([f"{head}: one call on the emulated device", *tables])
    tell("building and profiling, which takes a minute or more")
    call = ncu.Call(problem.path.absolute(), candidate.path.absolute(), device.name, dict(problem.shape))
    report, assembled = ncu.profiled(call, reports, candidate.name)
    return "\n\n".join([f"{head}: one call on {device.name}", report, *show.tables(None, assembled, screen)])


def counted(
    problem: Problem, candidate: Candidate, fork_server: ForkServer, tell: Callable[[str], None]
) -> tuple[list[Launched], list[Assembled], list[Recorded]]:
    """Calls the candidate twice on the emulated device and profiles the second call.

    Returns the kernel launches of the second call, what nvcc reports about the kernels of each library that the
    candidate built, and the recorded accesses of one launch of each kernel and size. Raises CannotProfile if the
    candidate fails, and NoCompiler if this machine lacks a tool for the build.
    """
    device = devices.named("cpu-profiled")
    tell("preparing the device")
    device.prepare(tell)
    fork_server.prepare(device.name)
    tell("building")
    file = file_name(candidate)
    subject = Subject(fork_server, device.name, Limits())
    try:
        subject.load(file, candidate.source, "ModelNew")
        subject.make(problem)
        tell("calling the kernel twice")
        packed = pack(problem.inputs(plan(problem, 0)[0].seed))
        subject.call(packed)
        subject.begin_profile()
        subject.call(packed)
        described = subject.end_profile()
        launched = _parsed(described)
        recorded = _recorded(described, launched, subject.file)
    except (Fault, Refused) as fault:
        again = shlex.join([*command(), "--problem", str(problem.name), "--kernel", file])
        raise CannotProfile(
            f"{fault}\nOnly a kernel that runs can be profiled. Check the kernel with: {again}"
        ) from None
    finally:
        subject.close()
    notes = (
        {key: subject.file.translated(text) for key, text in note_of(library).items()} for library in subject.libraries
    )
    assembled = [Assembled.parse(note) for note in notes]
    return launched, assembled, recorded


def _parsed(launches: Any) -> list[Launched]:
    """Returns the kernel launches that a worker reports. Raises Fault for a malformed report."""
    try:
        return [Launched.parse(launch) for launch in launches]
    except (KeyError, TypeError, ValueError):
        raise _malformed() from None


def _recorded(messages: Any, launched: Sequence[Launched], file: CandidateFile) -> list[Recorded]:
    """Returns the recorded accesses of the launches that a worker reports. Raises Fault for a malformed report."""
    times = Counter(one.configuration for one in launched)
    try:
        found = [
            accesses.parse(message, times[one.configuration], file)
            for message, one in zip(messages, launched, strict=True)
        ]
    except (KeyError, TypeError, ValueError):
        raise _malformed() from None
    return [each for each in found if each]


def _malformed() -> Fault:
    return Fault(Status.CRASHED, "The process sent a malformed list of kernel launches.")
