"""Turns a request that failed into an exception: the worker reported a failure, or it died."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from cuda_on_cpu.compile.candidate_file import CandidateFile
from kernel_harness.compile.cu_file import forward_of
from kernel_harness.core.status import Status
from kernel_harness.core.terminal import printable
from kernel_harness.device import MOST_USED, Device
from kernel_harness.ipc.messages import Call, DryRun, Failure, ListKernels, Make, Repeat, Replay, Stage, Start
from kernel_harness.ipc.schema import Message
from kernel_harness.problem.candidate import imports_triton
from kernel_harness.workers.faults import CannotStart, Fault, Refused
from kernel_harness.workers.process import WorkerFailed, WorkerTimedOut

PLACES = re.compile(
    r"^(?:Stack|Current thread).*most recent call first.*\n(?:  File .*\n)*(?:at \S+\n?)*", re.MULTILINE
)
"""What a worker prints that is asked where it is (`worker.where`)."""
_REFUSABLE = (Make, Call, DryRun, ListKernels, Repeat, Replay)
# A call that would end in time on a GPU may be too long here, so it is no TIMEOUT.
_SLOW_INTERPRETER = (
    "Without a GPU, Triton's interpreter runs the programs of a grid with numpy, which is slow: choose smaller sizes "
    "with --shape, or raise --timeout."
)
_STATUS_OF_STAGE = {
    Stage.BUILD: Status.BUILD_ERROR,
    Stage.FULL_HEADERS: Status.BUILD_ERROR,
    Stage.UNSUPPORTED: Status.UNSUPPORTED,
    Stage.LOAD: Status.LOAD_ERROR,
    Stage.MAKE: Status.RUNTIME_ERROR,
    Stage.CALL: Status.RUNTIME_ERROR,
}
_STAGES_ON_DEVICE = (Stage.LOAD, Stage.MAKE, Stage.CALL)


@contextmanager
def as_faults(request: Message, file: CandidateFile, device: Device) -> Iterator[None]:
    """Raises Fault in place of WorkerFailed, which the code in the `with` block may raise for `request`.

    `file` is the candidate's file.
    """
    try:
        yield
    except WorkerTimedOut as error:
        output = printable(file.translated(error.output))
        if isinstance(request, Call) and device.emulated and imports_triton(file.text):
            raise Fault(Status.UNSUPPORTED, f"{error} {_SLOW_INTERPRETER}", output) from None
        raise Fault(Status.TIMEOUT, f"{error}{_where(output, file)}", output) from None
    except WorkerFailed as error:
        output = printable(file.translated(error.output))
        reason = _with_last_line(str(error), output)
        raise Fault(Status.CRASHED, reason, output, lacked_memory=_is_short_of_memory(device)) from None


def reported(request: Message, failure: Failure, file: CandidateFile, device: Device) -> Exception:
    """Returns the exception for `failure`, which the worker of the candidate `file` sent in reply to `request`.

    A candidate can forge the reported stage. The stage must be START if the request is Start, and another stage for any
    other request. For any other combination, returns a Fault with the status CRASHED, as for a malformed message.
    Otherwise returns CannotStart for the request Start, and Refused or a Fault for any other request.
    """
    starting = isinstance(request, Start)
    if (failure.stage is Stage.START) is not starting:
        report = f"a failure at the stage {failure.stage} in reply to {type(request).__name__}"
        return Fault(Status.CRASHED, f"The process sent a malformed message: {report}.")
    text, log = (file.translated(printable(each)) for each in (failure.message, failure.log))
    if starting:
        return CannotStart(f"The worker could not start: {text}\n{log}")
    if failure.stage not in (Stage.BUILD, Stage.UNSUPPORTED):
        text, line = _placed(text, failure, file)
        where = f"{file.name}:{line}: " if line is not None else ""
        text = f"{where}{printable(failure.type)}: {_first_lines(text)}"
    if isinstance(request, _REFUSABLE) and failure.stage in (Stage.MAKE, Stage.CALL) and failure.refusal:
        return Refused(text, log)
    lacked_memory = failure.stage in _STAGES_ON_DEVICE and _is_short_of_memory(device)
    return Fault(_STATUS_OF_STAGE[failure.stage], text, log, lacked_memory=lacked_memory)


def _is_short_of_memory(device: Device) -> bool:
    """Returns whether much of the device's memory is in use now, while the candidate's process may still hold some.

    The candidate may then have failed for lack of memory, whatever it says itself.
    """
    return device.used_share() > MOST_USED


def _where(output: str, file: CandidateFile) -> str:
    """Returns a sentence with the line of the candidate's file at which Python was, by what the worker printed.

    Returns an empty text if no line is known, and for a `.cu` file, which has no Python.
    """
    frames = re.findall(r'^  File "([^"\n]+)", line (\d{1,9}) in (\S+)$', output, re.MULTILINE)
    own = [(int(line), function) for name, line, function in frames if name == file.name]
    if not own or file.name.endswith(".cu"):
        return ""
    line, function = own[0]
    return f" It was at {file.name}:{line} (in {function}): `{file.line(line).strip()}`."


def _placed(text: str, failure: Failure, file: CandidateFile) -> tuple[str, int | None]:
    """Returns the message `text` of `failure` without the place of the error, and the line in the candidate's file.

    The line is that of the check in C++ code that failed. Without one, it is the line at which Python code raised the
    exception, or, for a failed call, that of `forward` in a `.cu` file. It is None if no line is known.
    """
    place = rf"{re.escape(file.name)}:(\d{{1,9}})"
    raised = re.search(rf"raised (?:from [^\n]* )?at {place}", text)
    text = re.sub(rf" ?\(raised at {place}\)", "", text)
    forward = forward_of(file.text) if file.name.endswith(".cu") and failure.stage is Stage.CALL else None
    return text, int(raised[1]) if raised else failure.line or (forward.line if forward else None)


def _first_lines(text: str, count: int = 3) -> str:
    """Returns the first `count` lines of an error message, without empty lines and torch's C++ backtrace."""
    lines = [line for line in text.split("\n") if line.strip()]
    cut = next((i for i, line in enumerate(lines) if line.startswith("Exception raised from")), len(lines))
    return "\n".join(lines[: min(cut, count)])


def _with_last_line(message: str, output: str) -> str:
    last = next((line.strip() for line in reversed(output.split("\n")) if line.strip()), "")
    return f"{message} Last line of its output: {last[:300]}" if last else message
