"""The judge's handle of one worker process: sends requests, enforces limits, and pauses, resumes and kills the worker.

This module gives no verdicts: the package `checking` decides whether a candidate is right.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import psutil

from kernel_harness.core import folder_removal, process_tree
from kernel_harness.core.closing import Closing
from kernel_harness.core.codec import Malformed
from kernel_harness.ipc import channel, envelope, process_messages
from kernel_harness.ipc.build_messages import BuildWanted
from kernel_harness.ipc.channel import Channel
from kernel_harness.ipc.envelope import Received
from kernel_harness.ipc.messages import Failure
from kernel_harness.ipc.schema import Message
from kernel_harness.workers.pauses import ESCAPES, Pauses, signal_each
from kernel_harness.workers.printed import Printed

_TICK_S = 0.05
# Limits are checked in each wait for a reply. Short calls end before the first check, so pauses check them, too.
_CHECK_S = 2.0
# Stopping a worker takes some milliseconds. It takes seconds if a process just frees gigabytes of memory, because a
# process cannot be stopped meanwhile.
_PAUSE_S = 10.0
_WHERE_S, _QUIET_S = 0.5, 0.02
_CLOSE_S = 0.5  # before a kill, so that fewer processes are started meanwhile

R = TypeVar("R", bound=Message)

Wait = Callable[[Callable[[], bool], float | None], bool]
"""A function that waits until a condition holds, for at most the given number of seconds if not None.

Returns whether the condition holds. The wait also ends when the worker has replied."""

Meanwhile = Callable[[Wait], None]
"""A function that the judge calls between a request and its reply, with a Wait to wait for the worker meanwhile."""


@dataclass(frozen=True)
class Limits:
    """The limits of one worker.

    `call_s` and `build_s` are the most seconds for one call and for one build. `tasks` is the largest
    number of threads in all of the worker's processes together, those of compilers included. `memory_bytes` limits the
    memory of all of these processes, including the worker's files if they are in memory.
    """

    call_s: float = 60.0
    build_s: float = 300.0
    tasks: int = 512
    memory_bytes: int = field(default_factory=lambda: min(16 << 30, int(0.6 * psutil.virtual_memory().total)))


class WorkerFailed(Exception):
    """The error raised if a worker gives no valid reply. `output` is the end of the text that the worker printed."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


class WorkerCrashed(WorkerFailed):
    """The error raised if a worker ends before it replies."""


class WorkerTimedOut(WorkerFailed):
    """The error raised if a worker does not reply within the time limit. The worker has been killed."""


class WorkerMisbehaved(WorkerFailed):
    """The error raised if a worker sends a malformed message or exceeds a limit. The worker has been killed."""


class Parent(Protocol):
    """The judge's handle of the process that started a worker, such as the fork server.

    A WorkerProcess gets two facts from it: the worker's wait status, and the bytes of the worker's files in memory.
    """

    def exit_status(self, pid: int) -> int | None:
        """Returns a worker's wait status (the second value that `os.waitpid` returns), or None while the worker runs.

        `pid` is the field `inner_pid` of the worker's WorkerHandles.
        """

    def file_bytes(self, pid: int, folder: Path) -> int:
        """Returns the bytes of the worker's files in memory. Counted only behind NAMESPACES; 0 behind any other wall.

        Files in `folder`, which is the worker's own folder, and in /dev/shm are counted. Those in /tmp are not. The
        result is also 0 until the worker has entered the wall. `pid` is the field `pid` of the worker's WorkerHandles.
        """


class WorkerFactory(Protocol):
    """A source of worker processes, for example a fork server."""

    def spawn(self, limits: Limits) -> WorkerProcess:
        """Starts a worker with the limits `limits` and returns its handle."""


@dataclass(frozen=True)
class WorkerHandles:
    """The process numbers, sockets, descriptors and folder of a running worker.

    `pid` is the number, in the judge's namespace, of the process of which all the worker's processes are descendants:
    the worker's reaper, or compute-sanitizer. `inner_pid` is the number of the same process in the fork server's
    namespace. `end` is the judge's end of the channel. `output` is the pipe from which the judge reads what the worker
    prints. `folder` is the worker's own folder.
    """

    pid: int
    inner_pid: int
    end: socket.socket
    output: int
    folder: Path


class WorkerProcess(Closing):
    """The judge's handle of one worker. Only one thread may use it at a time."""

    def __init__(self, parent: Parent, handles: WorkerHandles, limits: Limits) -> None:
        self.pid, self._inner_pid = handles.pid, handles.inner_pid
        self._parent, self._limits = parent, limits
        self._channel, self._printed = Channel(handles.end), Printed(handles.output)
        self._checked = time.monotonic()  # when the limits were last checked
        self._folder = handles.folder
        self._alive = True
        self._pauses = Pauses(self.pid)
        self._failure: WorkerFailed | None = None  # why the worker is dead; raised by every later request

    def request(
        self, request: Message, expected: type[R], descriptors: Sequence[int] = (), *, timeout_s: float,
        meanwhile: Meanwhile | None = None,
    ) -> Received[R | Failure | BuildWanted]:  # fmt: skip
        """Sends `request` and returns the reply, which is of the class `expected`, a Failure or a BuildWanted.

        The caller must close the descriptors that come with the reply. A paused worker is resumed first. While the
        judge waits, it reads what the worker prints and checks the worker's limits. Raises WorkerTimedOut after
        `timeout_s` seconds, WorkerCrashed if the worker ends before it replies, and WorkerMisbehaved if it sends a
        malformed message or exceeds a limit. The worker is dead then, and every later request raises the same
        exception. `meanwhile` is called between the request and the reply, and `timeout_s` includes its time.
        """
        self.resume()
        if self._failure is not None:
            raise self._failure
        deadline = time.monotonic() + timeout_s
        # A reply repeats its request's number. A reply that is sent before the request cannot know the number.
        number = secrets.token_hex(8)
        kinds: tuple[type[R | Failure | BuildWanted], ...] = (expected, Failure, BuildWanted)
        try:
            envelope.send(self._channel, request, number, descriptors, timeout_s)
            if meanwhile is not None:
                meanwhile(lambda condition, limit_s: self._spin(condition, limit_s, deadline))
            while True:
                self._await_reply(deadline)
                # A worker could send a part of its reply and exceed its limits before it sends the rest.
                with contextlib.suppress(TimeoutError):
                    return envelope.receive(self._channel, kinds, number=number, timeout_s=_TICK_S)
                if time.monotonic() >= deadline:
                    raise TimeoutError
                self._check_limits()
        except TimeoutError:
            self._ask_where()
            raise self._dead(WorkerTimedOut, f"No answer within {timeout_s:g} s.") from None
        except Malformed as error:
            raise self._dead(WorkerMisbehaved, f"The process sent a malformed message: {error}.") from None
        except channel.Closed:
            raise self._dead(WorkerCrashed, self._how_it_ended()) from None

    def _ask_where(self) -> None:
        """Has the worker print where it is (`worker.where`), for at most _WHERE_S seconds after each of two signals.

        The signals end a process that does not handle them, which the caller would end anyway.
        """
        for number in process_messages.PLACE_SIGNALS:
            before, end = self._printed.count, time.monotonic() + _WHERE_S
            signal_each(number, process_tree.pids(self.pid)[1:2])
            while self._printed.is_open and time.monotonic() < end:
                if select.select([self._printed], [], [], _QUIET_S)[0]:
                    self._printed.read()
                elif self._printed.count > before:
                    break

    def _await_reply(self, deadline: float) -> None:
        """Waits until the channel can be read. Meanwhile reads what the worker prints and checks the worker's limits.

        These are the limits of threads and memory (`_check_limits`); what the worker prints has no limit. Raises
        TimeoutError at `deadline` (in the time of `time.monotonic`), and WorkerMisbehaved for an exceeded limit.
        """
        while True:
            if self._replies(min(_TICK_S, max(0.0, deadline - time.monotonic()))):
                return
            if time.monotonic() >= deadline:
                raise TimeoutError
            self._check_limits()

    def _spin(self, condition: Callable[[], bool], limit_s: float | None, deadline: float) -> bool:
        """Waits until `condition` returns True. Does not sleep, because a sleep ends late. Returns the last result.

        The wait also ends after `limit_s` seconds if that is not None, or when the worker has replied. Meanwhile reads
        what the worker prints and checks the worker's limits. Raises TimeoutError at `deadline` (in the time of
        `time.monotonic`), and WorkerMisbehaved for an exceeded limit.
        """
        end = math.inf if limit_s is None else time.monotonic() + limit_s
        next_check = time.monotonic() + _TICK_S
        while not condition():
            os.sched_yield()  # lets another process run if all cores are busy
            now = time.monotonic()
            if now < min(next_check, end):
                continue
            if now >= end or self._replies(0):
                return condition()
            if now >= deadline:
                raise TimeoutError
            self._check_limits()
            next_check = time.monotonic() + _TICK_S
        return True

    def _replies(self, wait_s: float) -> bool:
        """Waits for at most `wait_s` seconds, and returns whether the channel can be read.

        Reads what the worker has printed, which also ends the wait.
        """
        watched: list[Channel | Printed] = [self._channel, self._printed] if self._printed.is_open else [self._channel]
        readable, _, _ = select.select(watched, [], [], wait_s)
        if self._printed in readable:
            self._printed.read()
        return self._channel in readable

    def pause(self) -> None:
        """Stops all threads of the worker and of its descendants, until `resume`.

        Kills the worker if not all of its processes can be stopped within _PAUSE_S seconds, or if the worker exceeds
        its limits. Also kills a worker that is already paused if it has escaped too many pauses (`look_for_escape`).
        The next request to a worker that was killed raises WorkerMisbehaved.
        """
        self.look_for_escape()
        if self._alive and not self._pauses.stop(_PAUSE_S):
            self._dead(
                WorkerMisbehaved,
                f"The process and those that it started could not all be stopped within {_PAUSE_S:g} s, so that other "
                "candidates could be timed. They were ended. Processes must not start or resume others without end.",
            )
        if self._alive and time.monotonic() - self._checked > _CHECK_S:
            with contextlib.suppress(WorkerMisbehaved):  # every later request raises it
                self._check_limits()

    def resume(self) -> None:
        """Resumes the processes that `pause` stopped. Kills a worker that has escaped too many pauses instead."""
        self.look_for_escape()
        if self._alive:
            self._pauses.resume()

    def look_for_escape(self) -> None:
        """Kills the worker if it has escaped too many pauses (`Pauses.escaped_often`). Does nothing between pauses."""
        if self._alive and self._pauses.escaped_often():
            self._dead(
                WorkerMisbehaved,
                f"The process, or one that it started, ran {ESCAPES} times while it was stopped, so that other "
                "candidates could be timed. It was ended. A process must not resume itself, for example by a timer.",
            )

    def close(self) -> None:
        """Kills the worker and its descendants, and deletes the worker's folder. Safe to call twice."""
        if not self._alive:
            return
        self._failure = self._failure or WorkerCrashed("The process has been ended.", self.output)
        self._alive = False
        end = time.monotonic() + 10
        while process_tree.group(self.pid) and time.monotonic() < end:
            self._pauses.stop(_CLOSE_S)  # otherwise a process that forks in a loop could outrun the kills
            group = process_tree.group(self.pid)
            for process in group[1:] or group:  # the first one, the reaper, is killed last: it adopts orphans
                process_tree.kill(process)
            time.sleep(0.005)
        self._channel.close()
        self._printed.close()
        folder_removal.remove(self._folder)

    @property
    def output(self) -> str:
        """Returns the end of what the worker has printed so far."""
        return self._printed.text

    def _check_limits(self) -> None:
        """Kills the worker and raises WorkerMisbehaved if the worker has too many threads or takes too much memory."""
        self._checked = time.monotonic()
        tasks, files = 0, self._parent.file_bytes(self.pid, self._folder)
        memory = files
        for process in process_tree.group(self.pid):
            tasks += len(process_tree.tasks(process.pid))
            memory += process_tree.rss_bytes(process.pid)
        if tasks > self._limits.tasks:
            raise self._dead(
                WorkerMisbehaved, f"The process started {tasks} tasks; at most {self._limits.tasks} are allowed."
            )
        if memory > self._limits.memory_bytes:  # RSS counts a shared page once for each process; PSS counts it once
            memory = files + process_tree.memory_bytes(process_tree.group(self.pid))
        if memory > self._limits.memory_bytes:
            limit = self._limits.memory_bytes >> 20
            raise self._dead(
                WorkerMisbehaved, f"The process took {memory >> 20} MiB of memory; at most {limit} MiB are allowed."
            )

    def _dead(self, kind: type[WorkerFailed], message: str) -> WorkerFailed:
        """Reads the worker's last output, kills the worker, and returns the exception that every later request raises.

        `kind` is the exception's class and `message` its text.
        """
        self._failure = kind(message, self.output)
        self.close()
        return self._failure

    def _how_it_ended(self) -> str:
        deadline = time.monotonic() + 2
        while (status := self._parent.exit_status(self._inner_pid)) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if status is None:
            return "The process closed its connection without an answer."
        if os.WIFSIGNALED(status):
            return f"The process was ended by {_signal_name(os.WTERMSIG(status))}."
        return f"The process left with exit code {os.WEXITSTATUS(status)} before it answered."


def _signal_name(number: int) -> str:
    """Returns the name of the signal `number`, such as `SIGSEGV`. If Python has no name for it, returns `signal N`.

    Python has no names for most of the real-time signals.
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
