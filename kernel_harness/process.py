"""Worker processes as the judge holds them: asked, watched, stopped, ended. Verdicts are made elsewhere."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import select
import shutil
import signal
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from kernel_harness import channel, tree
from kernel_harness.channel import Channel, Message

if TYPE_CHECKING:
    from kernel_harness.spawn import Template

KEPT_OUTPUT_BYTES = 64 * 1024
_TICK_S = 0.05
# Whoever goes on starting processes for so long, while all that are seen are stopped, does not mean to stand still.
_STANDSTILL_S, _GLANCE_S = 2.0, 1e-4
_PIPE_BYTES = 1 << 20


@dataclass(frozen=True)
class Limits:
    """What a worker may use. Tasks are threads and processes, its compilers' among them."""

    call_s: float = 60.0
    build_s: float = 300.0
    tasks: int = 512
    memory_bytes: int = field(default_factory=lambda: min(16 << 30, int(0.6 * psutil.virtual_memory().total)))


class WorkerFailed(Exception):
    """A worker that gave no answer. `output` is the end of what it printed."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


class WorkerCrashed(WorkerFailed):
    """It died."""


class WorkerTimedOut(WorkerFailed):
    """It did not answer in time, and was killed."""


class WorkerMisbehaved(WorkerFailed):
    """It answered with something that is no answer, or used more than it may, and was killed."""


class Worker:
    """One child. Used by one thread at a time."""

    def __init__(
        self, template: Template, pid: int, inner: int, end: socket.socket, output: int, folder: Path, limits: Limits
    ) -> None:
        self.pid = pid
        self._inner = inner
        self._template, self._limits = template, limits
        self._channel, self._output = Channel(end), output
        os.set_blocking(output, False)
        with contextlib.suppress(OSError):  # fewer switches for a worker that prints much
            fcntl.fcntl(output, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self.printed_bytes = 0
        self._folder = folder
        self._alive = True
        self._standing: tuple[int, ...] = ()
        self._fault: WorkerFailed | None = None  # why it is dead, which answers every further question

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(
        self,
        message: Message,
        descriptors: Sequence[int] = (),
        *,
        timeout_s: float,
        received: list[int] | None = None,
    ) -> Message:
        """Sends a message and waits for its answer, draining what the worker prints and watching what it uses.

        A worker that stands goes on first. Descriptors that come with it are closed, or added to `received` for the
        caller to close.
        Raises WorkerCrashed, WorkerTimedOut, WorkerMisbehaved; the worker is then dead.
        """
        if self._fault is not None:
            raise self._fault
        deadline = time.monotonic() + timeout_s
        # An answer names its question: one that was sent before the question came answers nothing.
        number = secrets.token_hex(8)
        self.resume()
        try:
            self._channel.send({**message, "number": number}, descriptors, timeout_s)
            while True:
                wait = min(_TICK_S, max(0.0, deadline - time.monotonic()))
                readable, _, _ = select.select([self._channel.fileno(), self._output], [], [], wait)
                if self._output in readable:
                    self._drain()
                if self._channel.fileno() in readable:
                    return self._answer(number, deadline, received)
                if time.monotonic() >= deadline:
                    raise TimeoutError
                self._watch()
        except TimeoutError:
            raise self._dead(WorkerTimedOut, f"No answer within {timeout_s:g} s.") from None
        except channel.Malformed as error:
            raise self._dead(WorkerMisbehaved, f"The process answered with {error}.") from None
        except channel.Closed:
            raise self._dead(WorkerCrashed, self._how_it_ended()) from None

    def _answer(self, number: str, deadline: float, received: list[int] | None) -> Message:
        reply, sent = self._channel.receive(max(0.1, deadline - time.monotonic()))
        if received is None:
            for descriptor in sent:
                os.close(descriptor)
        else:
            received += sent
        if reply.pop("number", None) != number:
            raise channel.Malformed("what was not asked")
        return reply

    def pause(self) -> None:
        """Stops every thread of the worker and of what it started. One that cannot be stopped is ended."""
        if self._alive and not self._stopped():
            self._dead(WorkerMisbehaved, "The process does not stand still when it is stopped.")

    def _stopped(self) -> bool:
        """Stops all; processes that are started meanwhile in turn. Whether no new one shows up any more.

        A fork under way goes on when its process is told to stop: it takes until that stands. Who is dead and not
        yet collected counts, too: a process that starts another and ends, over and over, shows nothing else.
        """
        seen: set[int] = set()
        start = latest = time.monotonic()
        while latest - start < _STANDSTILL_S:
            all_stand = all(map(tree.stands, seen))
            new = [pid for pid in tree.pids(self.pid) if pid not in seen]
            # What waits for a device cannot be stopped before that has answered, and starts nothing.
            if not new and (all_stand or time.monotonic() - latest > _STANDSTILL_S):
                self._standing = tuple(seen)
                return True
            self._signal(signal.SIGSTOP, new)
            seen.update(new)
            latest = time.monotonic() if new else latest
            time.sleep(_GLANCE_S)
        return False

    def resume(self) -> None:
        """Lets those go on that `pause` stopped: while they stood, nobody could start another."""
        if self._alive:
            self._signal(signal.SIGCONT, self._standing)
        self._standing = ()

    def _signal(self, number: signal.Signals, pids: Sequence[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def close(self) -> None:
        """Ends the worker and everything it started. Safe to call twice."""
        if not self._alive:
            return
        self._alive = False
        self._fault = self._fault or WorkerCrashed("The process has been ended.", self.output)
        end = time.monotonic() + 10
        while tree.group(self.pid) and time.monotonic() < end:
            self._stopped()  # or who starts others without end would be ahead
            group = tree.group(self.pid)
            for process in group[1:] or group:  # the first collects whom the others leave behind
                tree.kill(process)
            time.sleep(0.005)
        self._channel.close()
        os.close(self._output)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def output(self) -> str:
        """The end of what the worker printed."""
        return b"".join(self._kept).decode(errors="replace")

    def _drain(self) -> None:
        """Reads what was printed, keeps the end of it, and so never lets a print block."""
        try:
            data = os.read(self._output, _PIPE_BYTES)
        except BlockingIOError:
            return
        if not data:
            time.sleep(0.001)  # every writer has closed it: the channel's end of file follows
        self.printed_bytes += len(data)
        self._kept.append(data)
        self._kept_bytes += len(data)
        while self._kept_bytes - len(self._kept[0]) > KEPT_OUTPUT_BYTES:
            self._kept_bytes -= len(self._kept.popleft())

    def _watch(self) -> None:
        """Ends a worker that uses more than it may."""
        tasks, files = 0, self._template.bytes_in(self.pid, self._folder)
        memory = files
        for process in tree.group(self.pid):
            try:
                with process.oneshot():
                    tasks += process.num_threads()
                    memory += process.memory_info().rss
            except psutil.Error:
                continue
        if tasks > self._limits.tasks:
            raise self._dead(
                WorkerMisbehaved, f"The process started {tasks} tasks; at most {self._limits.tasks} are allowed."
            )
        if memory > self._limits.memory_bytes:
            memory = files + tree.without_sharing(tree.group(self.pid))
        if memory > self._limits.memory_bytes:
            limit = self._limits.memory_bytes >> 20
            raise self._dead(
                WorkerMisbehaved, f"The process took {memory >> 20} MiB of memory; at most {limit} MiB are allowed."
            )

    def _dead(self, kind: type[WorkerFailed], message: str) -> WorkerFailed:
        for _ in range(64):
            if not select.select([self._output], [], [], 0)[0]:
                break
            self._drain()
        self._fault = kind(message, self.output)
        self.close()
        return self._fault

    def _how_it_ended(self) -> str:
        deadline = time.monotonic() + 2
        while (status := self._template.status_of(self._inner)) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if status is None:
            return "The process closed its connection without an answer."
        if os.WIFSIGNALED(status):
            return f"The process was ended by {_signal_name(os.WTERMSIG(status))}."
        return f"The process left with exit code {os.WEXITSTATUS(status)} before it answered."


def _signal_name(number: int) -> str:
    """Real-time signals have no names in Python."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
