"""The profiler: it reports what one call of a kernel does. The profiler does not check the outputs."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import Any

from cuda_on_cpu.compile.candidate_file import CandidateFile
from cuda_on_cpu.core.tell import Tell
from kernel_harness import device as devices
from kernel_harness.core.errors import UserError
from kernel_harness.core.paths import command
from kernel_harness.core.status import Status
from kernel_harness.core.terminal import Terminal
from kernel_harness.device import Device
from kernel_harness.device.profiled import note_of
from kernel_harness.diagnostics.profile import accesses, lines, ncu, show, triton
from kernel_harness.diagnostics.profile.accesses import Recorded
from kernel_harness.diagnostics.profile.resources import Assembled, Launched
from kernel_harness.diagnostics.profile.triton import Compiled
from kernel_harness.ipc import messages
from kernel_harness.ipc.packed import pack
from kernel_harness.problem.candidate import Candidate, file_name
from kernel_harness.problem.problem import Problem, shape_text
from kernel_harness.workers.faults import Fault, Refused
from kernel_harness.workers.fork_server import ForkServer
from kernel_harness.workers.process import Limits
from kernel_harness.workers.worker_client import WorkerClient


class CannotProfile(UserError):
    """The error raised if a kernel fails before or during the profiled call on the emulated device."""

    exit_code = 1


def profile(
    problem: Problem, candidate: Candidate, device: Device, reports: Path, fork_server: ForkServer, screen: Terminal,
    tell: Tell,
) -> str:  # fmt: skip
    """Profiles one call of `candidate` at the problem's sizes. Returns the profile as text for the user.

    On the emulated device, the text has tables of the kernel launches, of the kernels' resources and of what each line
    executes and does to memory, and the largest causes of lost time. The profile by line that the verb `report` shows
    is stored in the folder `reports`. Of a Triton kernel it has the resources alone. Raises CannotProfile if the
    candidate fails.

    On a GPU, the text is the report of Nsight Compute and the table of resources, or says how ncu or the kernel failed.
    The report files of Nsight Compute are kept in `reports`.

    `screen` gives the width to which text is wrapped. `tell` is called with a text before each step. Raises Unwritable
    if `reports` cannot be written.
    """
    problem.check_inputs()
    head = f"{problem.name}, {candidate.name}, {shape_text(problem.shape)}".rstrip(", ")
    if device.emulated:
        launched, assembled, recorded, compiled = counted(problem, candidate, fork_server, tell)
        if recorded:
            lines.stored(candidate.name, candidate.sha256, problem.shape, recorded).write(reports)
        tables = [triton.compiled(compiled), screen.wrapped(triton.NOT_COUNTED)] if compiled else []
        if launched or not compiled:
            tables += show.tables(launched, assembled, screen)
        tables += lines.paragraphs(recorded, screen)
        return "\n\n".join([f"{head}: one call on the emulated device", *tables])
    tell("building and profiling, which takes a minute or more")
    call = ncu.Call(problem.path.absolute(), candidate.path.absolute(), device.name_in_workers, dict(problem.shape))
    report, assembled = ncu.profiled(call, reports, candidate.name, device.worker_variables())
    return "\n\n".join([f"{head}: one call on {device.name}", report, *show.tables(None, assembled, screen)])


def counted(
    problem: Problem, candidate: Candidate, fork_server: ForkServer, tell: Tell
) -> tuple[list[Launched], list[Assembled], list[Recorded], list[Compiled]]:
    """Calls the candidate twice on the emulated device and profiles the second call.

    Returns four lists: the kernel launches of the profiled call, nvcc's report about each library that the candidate
    built, what was recorded of the first launch of each kernel and size, and the Triton kernels of both calls. Raises
    CannotProfile if the candidate fails, and NoCompiler if this machine lacks a tool for the build.
    """
    device = devices.named("cpu-profiled")
    tell("preparing the device")
    device.prepare(tell)
    fork_server.prepare(device.name)
    tell("building")
    file = file_name(candidate)
    client = WorkerClient(fork_server, device.name, Limits())
    try:
        client.load(file, candidate.source, "ModelNew")
        client.make(problem)
        tell("calling the candidate twice")
        packed = pack(problem.inputs(0))  # as one_call.py draws them for Nsight Compute
        client.call(packed)
        client.ask(messages.BeginProfile(), messages.Done)
        client.call(packed)
        described = client.ask(messages.EndProfile(), messages.Recorded).content  # unchecked JSON of the worker
        launched, recorded, compiled = _parsed(described, client.file)
    except (Fault, Refused) as fault:
        again = shlex.join([*command(), "--problem", str(problem.name), "--kernel", file])
        raise CannotProfile(
            f"{fault}\nOnly a kernel that runs can be profiled. Check the kernel with: {again}"
        ) from None
    finally:
        client.close()
    notes = (
        {key: client.file.translated(text) for key, text in note_of(library).items()} for library in client.libraries
    )
    assembled = [Assembled.parse(note) for note in notes]
    return launched, assembled, recorded, compiled


def _parsed(described: Any, file: CandidateFile) -> tuple[list[Launched], list[Recorded], list[Compiled]]:
    """Returns the kernel launches that a worker reports in `described`, what was recorded of them, and Triton kernels.

    `file` is the candidate's file. Raises Fault for a malformed report.
    """
    try:
        launched = [Launched.parse(message) for message in described["launches"]]
        times = Counter(one.configuration for one in launched)
        found = [
            accesses.parse(message, times[one.configuration], file)
            for message, one in zip(described["launches"], launched, strict=True)
        ]
        compiled = [Compiled.parse(message) for message in described["compiled"]]
    except (KeyError, TypeError, ValueError):
        raise Fault(Status.CRASHED, "The process sent a malformed list of kernel launches.") from None
    return launched, [each for each in found if each], compiled
