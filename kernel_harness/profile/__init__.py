"""The verb `profile`: what one warmed-up call of a kernel does. It judges nothing: run does."""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from pathlib import Path

from kernel_harness import device as devices
from kernel_harness import find
from kernel_harness.cases import pack, plan
from kernel_harness.device import Device
from kernel_harness.device.profiled import note_of
from kernel_harness.errors import UserError
from kernel_harness.examine import Fault, Refused, Subject, file_name
from kernel_harness.inputs import buffer_of
from kernel_harness.judge import results_folder
from kernel_harness.problem import Problem, shape_text
from kernel_harness.process import Limits
from kernel_harness.profile import ncu, show
from kernel_harness.profile.resources import Assembled, Launched
from kernel_harness.spawn import Template
from kernel_harness.terminal import terminal


class CannotProfile(UserError):
    """The kernel does not get as far as a call."""

    exit_code = 1


def profile(options: argparse.Namespace, root: Path, template: Template) -> str:
    """The text that the options ask for. Raises UserError."""
    problem = find.problem(options.problem, root)
    (candidate,) = find.kernels([options.kernel], problem.name, root)[:1]
    device = find.device(options.device)
    timed = problem.on(emulated=device.emulated).at(options.shape)
    head = f"{problem.name}, {candidate.name}, {shape_text(timed.shape)}".rstrip(", ")
    screen = terminal(sys.stdout)
    if device.emulated:
        launched, assembled = counted(timed, file_name(candidate), candidate.source, template)
        return "\n\n".join([f"{head}: one call on the emulated device", *show.tables(launched, assembled, screen)])
    folder = results_folder(options.results, timed, device) / "profiles"
    report, assembled = ncu.profiled(_words(options, device), folder, candidate.name)
    return "\n\n".join([f"{head}: one call on {device.name}", report, *show.tables([], assembled, screen)])


def counted(problem: Problem, file: str, source: str, template: Template) -> tuple[list[Launched], list[Assembled]]:
    """What a call launches and does on the emulated device, and what nvcc says. Raises CannotProfile, NoCompiler."""
    device = devices.named("cpu-profiled")
    device.prepare()
    template.prepare(device.name)
    subject = Subject(template, device.name, Limits())
    try:
        subject.load(file, source, "ModelNew")
        subject.make(problem)
        packed = pack(problem.inputs(plan(problem, 0)[0].seed))
        buffer = buffer_of(packed)
        try:
            subject.call(packed, buffer, writable=True)
            subject.profile("begin")
            subject.call(packed, buffer, writable=True)
            said = subject.profile("end")
        finally:
            buffer.close()
    except (Fault, Refused) as fault:
        again = shlex.join(["python", "harness.py", "--problem", str(problem.name), "--kernel", file])
        raise CannotProfile(f"{fault}\nThere is nothing to profile until the kernel runs: {again}") from None
    finally:
        subject.close()
    assembled = [Assembled.read(note_of(library)) for library in subject.libraries]
    return [Launched.read(each) for each in said.get("launches", [])], assembled


def _words(options: argparse.Namespace, device: Device) -> list[str]:
    """Of the command that makes one call in a process of its own."""
    shape = ["--shape", shape_text(options.shape)] if options.shape else []
    kernel = options.kernel if re.search(r"\.(?:py|cu)$", options.kernel) else re.sub(r"\W", "", options.kernel)
    return ["--problem", options.problem, "--kernel", kernel, "--device", device.name, *shape]
