"""One candidate before its judge: built, then asked case after case. Faults of the candidate end here, as a Finding."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import torch

from kernel_harness import device as devices
from kernel_harness import tensors
from kernel_harness.candidate import Candidate
from kernel_harness.cases import FORWARD_SEED, Case, Packed, Reference, pack
from kernel_harness.channel import Message, SharedBuffer
from kernel_harness.device import Clocked, Steady
from kernel_harness.glimpse import Glimpse
from kernel_harness.inputs import buffer_of
from kernel_harness.paths import KERNELS, shown
from kernel_harness.problem import WEIGHT_SEED, Problem
from kernel_harness.process import Limits, Worker, WorkerFailed, WorkerTimedOut
from kernel_harness.spawn import Template
from kernel_harness.status import Status
from kernel_harness.terminal import printable
from kernel_harness.verify import Check, Expectation, same, unchanged, verify
from kernel_harness.workshop import Workshop

# Pages take memory only when they are written, so one size serves every problem.
_OUTPUT_BYTES = 16 << 30
_LONGEST_SOURCE = 1 << 20
_MOST_BUILDS, _MOST_BUILT_BYTES = 64, 1 << 30
# Of what a worker says: a structure as JSON, a sentence of an error, a compiler's log, in characters.
_LONGEST_STRUCTURE, _LONGEST_TEXT, _LONGEST_LOG = 1 << 16, 20_000, 1 << 20
_MOST_KERNELS, _LONGEST_NAME = 1000, 1000
_MAY_BE_REFUSED = ("receive", "call", "kernels", "warm", "steady")
# What can be a call's time in ms, and the bytes that it takes.
_SHORTEST_MS, _LONGEST_MS, _MOST_BYTES = 1e-6, 1e9, 1 << 50
_STATUS_OF_KIND = {
    "build": Status.BUILD_ERROR,
    "unsupported": Status.UNSUPPORTED,
    "load": Status.LOAD_ERROR,
    "make": Status.RUNTIME_ERROR,
    "call": Status.RUNTIME_ERROR,
}


class Fault(Exception):
    """The candidate's own failure: what it is called and what a person should read."""

    def __init__(self, status: Status, reason: str, log: str = "") -> None:
        super().__init__(reason)
        self.status, self.reason, self.log = status, reason, log


class CannotStart(RuntimeError):
    """A process that holds no candidate yet could not open the device."""


class Refused(Exception):
    """The candidate declined a shape before it launched anything."""

    def __init__(self, reason: str, log: str = "") -> None:
        super().__init__(reason)
        self.log = log


@dataclass
class Finding:
    """What has been seen of one candidate so far."""

    status: Status = Status.PASSED
    reason: str = ""
    log: str = ""
    checks: list[Check] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    builds: list[dict[str, Any]] = field(default_factory=list)
    build_s: float = 0.0
    queue_s: float = 0.0
    check_s: float = 0.0
    first_call_ms: float | None = None
    launches: int | None = None  # of its own kernels, in the last call that was checked, as the worker tells it
    failed_case: Case | None = None
    remark: str = ""


@dataclass(frozen=True)
class Answer:
    """What one call gave: copies that the worker cannot reach, and the times around it."""

    structure: Any
    outputs: tuple[torch.Tensor, ...]
    clocked: Clocked
    bracket_ms: float
    launches: int | None = None


class Subject:
    """A worker with one model class loaded: the judge's way of asking it. Every fault of it raises Fault."""

    def __init__(self, template: Template, device: str, limits: Limits) -> None:
        self.worker: Worker = template.spawn(limits)
        self.builds: list[dict[str, Any]] = []
        self.libraries: list[Path] = []  # in the cache
        self._workshop = Workshop(template, devices.named(device), limits)
        self._limits = limits
        self._file = self._source = ""
        self.closed = False
        self._output = SharedBuffer(_OUTPUT_BYTES)
        start = {
            "do": "start", "device": device, "output_size": self._output.size, "path": [str(KERNELS)],
        }  # fmt: skip
        try:
            self._ask(start, [self._output.descriptor])
        except BaseException:
            self.close()
            raise

    def load(self, file: str, source: str, name: str) -> None:
        """Runs the file, which builds it; `builds` is what that took."""
        self._file, self._source = file, source
        if len(json.dumps(source)) > _LONGEST_SOURCE:
            raise Fault(Status.LOAD_ERROR, f"{file} has {len(source) / 1e6:.1f} MB; at most 1 MB can be judged.")
        self._ask({"do": "load", "file": file, "source": source, "class": name}, timeout_s=self._limits.build_s)

    def make(self, problem: Problem, *, compiled: str | None = None) -> None:
        """Builds the model for the problem's shape; `compiled` is a mode of torch.compile."""
        packed = pack(problem.init_inputs())
        buffer = buffer_of(packed)
        try:
            message = {"do": "make", **_described(packed), "seed": WEIGHT_SEED, "compile": compiled}
            # What torch.compile or a first build in __init__ takes is build time, not call time.
            self._ask(message, [buffer.descriptor], timeout_s=self._limits.build_s)
        finally:
            buffer.close()

    def call(self, packed: Packed, buffer: SharedBuffer, *, patience: int = 1, **how: Any) -> Answer:
        """One forward on a buffer that holds the packed inputs.

        `writable`, `poison` and `hold` (cycles; None: the call is not timed) say how; `keep` the inputs for what
        is asked `again`; `patience` is by how much the time limit is longer than usual. The bracket opens when inputs
        become readable, to a process that is awake and has the masked ones; it closes on a sample of the output's
        bytes, which the copy must hold.
        """
        how = {"writable": False, "poison": False, "hold": None, "keep": False, **how}
        descriptor = buffer.descriptor if how["writable"] else buffer.read_only()
        message = {"do": "call", **_described(packed), "seed": FORWARD_SEED, **how}
        try:
            if packed.key is None:
                self.ping()
            else:
                self._ask({"do": "receive", "size": packed.size, "writable": False}, [descriptor])
            start = time.perf_counter()
            reply = self._ask(message, [descriptor], timeout_s=patience * self._limits.call_s)
            leaves = self._leaves(reply)
            glimpse = Glimpse(leaves, self._output.memory)
            bracket_ms = (time.perf_counter() - start) * 1e3
        finally:
            if not how["writable"]:
                os.close(descriptor)
        outputs = self._copied(reply, leaves, glimpse)
        launches = reply.get("launches")
        told = launches if isinstance(launches, int) else None
        return Answer(reply["structure"], outputs, _clocked(reply.get("clocked")), bracket_ms, told)

    def kernels(self, packed: Packed, buffer: SharedBuffer) -> list[str]:
        """What one forward launches on a CUDA device, by name, as the worker tells it."""
        descriptor = buffer.read_only()
        try:
            told = self._ask(
                {"do": "kernels", **_described(packed), "seed": FORWARD_SEED, "writable": False}, [descriptor]
            )
        finally:
            os.close(descriptor)
        names = told.get("kernels")
        if not isinstance(names, list):
            return []
        return [name[:_LONGEST_NAME] for name in names[:_MOST_KERNELS] if isinstance(name, str)]

    def warm(self, hold: int) -> Clocked:
        """The last call again, with its inputs still in the device's cache."""
        return _clocked(self._ask({"do": "warm", "hold": hold}).get("clocked"))

    def steady(self) -> Steady | None:
        """The last call replayed as a graph. Raises Fault or Refused where it cannot be captured."""
        reply = self._ask({"do": "steady"}).get("steady")
        numbers = [_time(reply.get(name)) for name in ("interval_ms", "overhead_ms")] if isinstance(reply, dict) else []
        return Steady(*numbers) if len(numbers) == 2 and None not in numbers else None  # type: ignore[arg-type]

    def profile(self, step: str) -> Message:
        """One step of the profiling device's own."""
        return self._ask({"do": "profile", "step": step})

    def sanitize(self, step: str, **what: Any) -> Message:
        """One step of the sanitizing device's own."""
        return self._ask({"do": "sanitize", "step": step, **what}, timeout_s=self._limits.build_s)

    def ping(self) -> None:
        """Returns once the worker runs."""
        self._ask({"do": "ping"})

    def close(self) -> None:
        """Ends the worker. Safe to call twice."""
        self.worker.close()
        if not self.closed:
            self._output.close()
        self.closed = True

    def _leaves(self, reply: Message) -> list[tensors.Leaf]:
        with _readable():
            return tensors.read_leaves(reply.get("leaves"), self._output.size)

    def _copied(self, reply: Message, leaves: Sequence[tensors.Leaf], glimpse: Glimpse) -> tuple[torch.Tensor, ...]:
        with _readable():
            if len(json.dumps(reply.get("structure"))) > _LONGEST_STRUCTURE:
                raise tensors.Unreadable(f"a structure of more than {_LONGEST_STRUCTURE >> 10} KiB")
            if sum(leaf.nbytes for leaf in leaves) > psutil.virtual_memory().available // 2:
                raise tensors.Unreadable("more output than this machine has memory to compare")
            copies = [leaf.bytes(self._output.memory).clone() for leaf in leaves]
            outputs = tuple(leaf.of(copy) for leaf, copy in zip(leaves, copies, strict=True))
            tensors.unflatten(reply.get("structure"), outputs)
        if not glimpse.agrees(copies):
            raise Fault(Status.CHEATED, "Its output changed after it had said that it was done.")
        return outputs

    def _ask(self, message: Message, descriptors: Sequence[int] = (), *, timeout_s: float | None = None) -> Message:
        deadline = time.monotonic() + (timeout_s or self._limits.call_s)
        try:
            reply = self.worker.ask(message, descriptors, timeout_s=timeout_s or self._limits.call_s)
            while "build" in reply:
                answer = self._built(reply["build"], max(0.1, deadline - time.monotonic()))
                reply = self.worker.ask(answer, timeout_s=max(0.1, deadline - time.monotonic()))
        except WorkerTimedOut as error:
            raise Fault(Status.TIMEOUT, str(error), error.output) from None
        except WorkerFailed as error:
            raise Fault(Status.CRASHED, _with_last_line(str(error), error.output), error.output) from None
        if isinstance(reply.get("ok"), dict):
            result: Message = reply["ok"]
            return result
        raise self._fault(message["do"], reply.get("error"))

    def _built(self, asked: Any, timeout_s: float) -> Message:
        """Builds for the worker, which stands still meanwhile: nobody watches what it does."""
        if len(self.builds) >= _MOST_BUILDS:
            raise Fault(Status.LOAD_ERROR, f"{self._file} asks for more than {_MOST_BUILDS} builds.")
        if sum(library.stat().st_size for library in self.libraries) > _MOST_BUILT_BYTES:
            raise Fault(Status.LOAD_ERROR, f"{self._file} builds more than {_MOST_BUILT_BYTES >> 20} MiB.")
        start = time.perf_counter()
        self.worker.pause()
        answer, cached = self._workshop.build(asked, self._file, self._source, timeout_s)
        self.libraries += [Path(answer["library"])] if "library" in answer else []
        name = asked.get("name") if isinstance(asked, dict) else None
        self.builds.append({"name": str(name)[:200], "seconds": time.perf_counter() - start, "cached": cached})
        return answer

    def _fault(self, asked: str, error: Any) -> Exception:
        """What was asked decides what may come of it: a worker's word on that is its candidate's."""
        kinds = {"start"} if asked == "start" else set(_STATUS_OF_KIND)
        if not isinstance(error, dict) or str(error.get("kind")) not in kinds:
            return Fault(Status.CRASHED, "The process answered with something that is no answer.")
        text = printable(str(error.get("message", ""))[:_LONGEST_TEXT])
        log, kind = printable(str(error.get("log", ""))[:_LONGEST_LOG]), printable(str(error.get("type", ""))[:100])
        if error["kind"] == "start":
            return CannotStart(f"The worker could not start: {text}\n{log}")
        if error["kind"] not in ("build", "unsupported"):
            where = f"{self._file}:{error['line']}: " if isinstance(error.get("line"), int) else ""
            text = f"{where}{kind}: {_first_lines(text)}"
        if asked in _MAY_BE_REFUSED and error["kind"] == "call" and error.get("refusal") is True:
            return Refused(text, log)
        return Fault(_STATUS_OF_KIND[error["kind"]], text, log)


@contextmanager
def _readable() -> Iterator[None]:
    """What a worker says, or a Fault where it cannot be read."""
    try:
        yield
    except (tensors.Unreadable, RecursionError) as error:
        raise Fault(Status.CRASHED, f"The process answered with {error}.") from None


def examine(
    subject: Subject, finding: Finding, reference: Reference, cases: Sequence[Case], tell: Callable[[str], None]
) -> None:
    """Asks every case in turn until one fails; what is seen goes into `finding`."""
    start = time.perf_counter()
    shape: Any = None
    try:
        for number, case in enumerate(cases, 1):
            tell(f"checking case {number} of {len(cases)}")
            finding.failed_case = case
            if case.shape != shape:
                subject.make(reference.at(case))
                shape = case.shape
            try:
                checks = _try(subject, finding, reference, case)
            except Refused as refusal:
                if case.timed_shape:
                    raise Fault(Status.RUNTIME_ERROR, str(refusal), refusal.log) from None
                finding.refused.append(case.shape_name)
                continue
            finding.checks += checks
            failed = next((c for c in checks if not c.passed), None)
            if failed:
                raise Fault(failed.status, f"{failed.case}: {failed.detail}")
        finding.failed_case = None
    except Fault as fault:
        finding.status, finding.reason, finding.log = fault.status, fault.reason, fault.log
        if finding.failed_case and finding.failed_case.name not in finding.reason:
            finding.reason += f"\nThis was at {finding.failed_case.name}."
    finally:
        finding.check_s = time.perf_counter() - start


def _try(subject: Subject, finding: Finding, reference: Reference, case: Case) -> list[Check]:
    packed = reference.inputs(case)
    buffer = buffer_of(packed)
    try:
        answer = subject.call(packed, buffer, writable=True, poison=case.poison)
        finding.first_call_ms = finding.first_call_ms or answer.bracket_ms
        finding.launches = answer.launches
        structure, expectation = reference.expectation(case)
        check = compare(answer, structure, expectation)
        if check.passed:
            check = _inputs_intact(packed, buffer, check)
        if not case.repeat or not check.passed:
            return [check]
        again = subject.call(packed, buffer, writable=True)
        return [check, same(answer.outputs, again.outputs, expectation.tolerance, f"{case.name} repeated")]
    finally:
        buffer.close()


def compare(answer: Answer, structure: Any, expectation: Expectation) -> Check:
    """An answer against what is expected: its nesting and plain values, then its tensors."""
    if tensors.skeleton(answer.structure) != tensors.skeleton(structure):
        detail = f"Got the structure {tensors.outline(answer.structure)}, expected {tensors.outline(structure)}."
        return Check(expectation.case, Status.WRONG_SHAPE, detail=detail)
    device = expectation.expected[0].device if expectation.expected else torch.device("cpu")
    return verify([output.to(device) for output in answer.outputs], expectation)


def _inputs_intact(packed: Packed, buffer: SharedBuffer, check: Check) -> Check:
    for i, (leaf, before) in enumerate(zip(packed.leaves, packed.tensors, strict=True)):
        if not unchanged(before, leaf.view(buffer.memory)):
            return Check(check.case, Status.MUTATED_INPUT, detail=f"Input {i + 1} was changed by the call.")
    for i in tensors.damaged(buffer.memory, packed.leaves, buffer.size):
        return Check(check.case, Status.MUTATED_INPUT, detail=f"Memory just beside input {i + 1} was written to.")
    return check


def _described(packed: Packed) -> Message:
    return {
        "size": packed.size,
        "leaves": [leaf.to_json() for leaf in packed.leaves],
        "structure": packed.structure,
        "key": packed.key,
    }


def file_name(candidate: Candidate) -> str:
    """The path as the user would type it from where they stand."""
    return shown(candidate.path)


def _clocked(told: Any) -> Clocked:
    """What a worker tells of its own call, as far as it can be read."""
    told = told if isinstance(told, dict) else {}
    peak = told.get("peak_bytes")
    ms = _time(told.get("device_ms"))
    return Clocked(
        ms if ms and _SHORTEST_MS <= ms <= _LONGEST_MS else None,
        told.get("exposed") is True,
        peak if type(peak) is int and 0 <= peak < _MOST_BYTES else None,
    )


def _time(told: Any) -> float | None:
    return told if isinstance(told, float) and math.isfinite(told) else None


def _first_lines(text: str, count: int = 3) -> str:
    """Without the C++ backtrace that torch appends."""
    lines = [line for line in text.split("\n") if line.strip()]
    cut = next((i for i, line in enumerate(lines) if line.startswith("Exception raised from")), len(lines))
    return "\n".join(lines[: min(cut, count)])


def _with_last_line(message: str, output: str) -> str:
    last = next((line.strip() for line in reversed(printable(output).split("\n")) if line.strip()), "")
    return f"{message} Its last words: {last[:300]}" if last else message


if sys.platform != "linux":
    raise ImportError("The harness needs Linux: it relies on memfd, subreapers and /proc.")
