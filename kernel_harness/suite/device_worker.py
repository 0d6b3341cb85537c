"""Device workers: processes of a suite or a pool that judge candidates, each on one device. This is the driver's side.

A device worker is a judge with a fork server and workers of its own. `judging` has its work.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from kernel_harness.core import codec, folder_removal, process_tree
from kernel_harness.core.paths import python_path
from kernel_harness.problem.candidate import Candidate

if TYPE_CHECKING:  # these import torch, and the process of a device worker starts its fork server first
    from kernel_harness.session.settings import Settings

PROGRAM = ("-m", "kernel_harness.suite.judging_process")
"""The words after `python` that start a device worker."""
# A device worker that is to end kills its processes and removes its files in this time.
_ENDING_S = 30.0
_LONGEST_ERROR = 4000
_PREFIX = "kernel-harness-suite-"
_LOCK = "lock"


@dataclass(frozen=True)
class SuiteProblem:
    """A problem file of a suite or a pool."""

    name: str
    """Unique in the suite: `<file>` or `<folder>_<file>`, where `<file>` has no suffix."""
    path: Path
    sha256: str = ""
    """The hash of the file, in hex; empty where no verdict is stored."""
    settings: Settings | None = None
    """The settings that its candidates are judged with; None takes those of the device worker."""


@dataclass(frozen=True)
class Task:
    """One candidate of one problem. `candidate.name` is unique among the unfinished candidates of the problem."""

    problem: SuiteProblem
    candidate: Candidate

    @property
    def id(self) -> tuple[str, str]:
        """Returns (name of the problem, name of the candidate), which no other unfinished task has."""
        return self.problem.name, self.candidate.name


@dataclass(frozen=True)
class Ready:
    """A device worker's message that its device can be used."""

    label: str
    """The name of the folder for the device's results."""
    device: str
    """The device's own name, such as `NVIDIA H200`."""


@dataclass(frozen=True)
class Began:
    """A device worker's message that the checks of a task begin."""

    task: tuple[str, ...]


@dataclass(frozen=True)
class Verdict:
    """A device worker's message that a task has been judged."""

    task: tuple[str, ...]
    lines: tuple[str, ...] = ()
    """The candidate's result, then those of the baselines that were timed beside it (`results.record.to_line`)."""
    seconds: float = 0.0
    """The time from the beginning of the checks to the verdict."""
    phases_s: Mapping[str, float] = field(default_factory=dict)
    """The seconds of each phase of the device worker's work since its last verdict (`core.phases`)."""
    crashed: str = ""
    """Why there are no `lines`: each device worker that judged the candidate has ended. The status is CRASHED."""


@dataclass(frozen=True)
class Unusable:
    """A device worker's message that a task gets no verdict, because its problem cannot be used."""

    task: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Lacking:
    """A device worker's message that this machine cannot judge candidates on its device."""

    reason: str


Message = Ready | Began | Verdict | Unusable | Lacking
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Ready, Began, Verdict, Unusable, Lacking)}


def send(driver: Connection, message: Message) -> None:
    """Sends a message to the driver as JSON: a device worker handles data of candidates, so it sends no pickles."""
    driver.send_bytes(json.dumps({"kind": type(message).__name__, **asdict(message)}).encode())


class SuiteFolder:
    """A new temporary folder of a suite or a pool, with a folder for each device worker.

    This process and its device workers hold a lock on it until `close`. If all of them were killed, the lock is free,
    and the constructor of the next SuiteFolder on this machine removes the folder.
    """

    def __init__(self) -> None:
        for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            _remove_abandoned(folder)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self.lock = (self.path / _LOCK).open("wb")
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def close(self) -> None:
        """Removes the folder. Safe to call twice."""
        folder_removal.remove(self.path)
        self.lock.close()


def leave(own: Path) -> None:
    """Removes `own`, a device worker's folder in that of a suite, and the suite's folder if it has no other one.

    A device worker calls this when its driver has ended, because a driver that was killed removes nothing.
    """
    folder_removal.remove(own)
    with suppress(OSError):
        if not any(path.is_dir() for path in own.parent.iterdir()):
            folder_removal.remove(own.parent)


def _remove_abandoned(folder: Path) -> None:
    with suppress(OSError), (folder / _LOCK).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder_removal.remove(folder)


class Worker(ABC):
    """A device worker, as its driver sees it. Messages of the worker arrive at `connection`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.ready = False
        self.in_flight: dict[tuple[str, ...], Task] = {}
        """The unfinished tasks, by their ids."""
        self.problem: str | None = None
        """The name of the problem of the task that it got last."""
        self.began: tuple[str, ...] | None = None
        """The id of the task whose checks have begun."""
        self.heard_at = time.monotonic()
        """When the worker last sent something, or got a task while it had none, by `time.monotonic`."""

    def give(self, task: Task) -> None:
        """Sends a task. Raises no error if the worker has ended: `receive` then returns None."""
        if not self.in_flight:
            self.heard_at = time.monotonic()
        self.in_flight[task.id] = task
        self.problem = task.problem.name
        self._send(task)

    def receive(self) -> Message | None:
        """Waits for a message and returns it; None if the worker has ended."""
        try:
            fields = json.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            return None
        self.heard_at = time.monotonic()
        message: Message = codec.reader(_KINDS[fields.pop("kind")])(fields)
        return message

    @abstractmethod
    def _send(self, task: Task) -> None: ...

    @abstractmethod
    def interrupt(self) -> None:
        """Makes the worker end at once, after it has ended all its processes and removed its files."""

    @abstractmethod
    def kill(self) -> None:
        """Kills the processes of a worker that is silent for too long."""

    @abstractmethod
    def close(self) -> str:
        """Waits until the worker has ended, and kills it if that takes too long. Returns how it has ended."""


class DeviceWorker(Worker):
    """A process on this machine that judges candidates on `device`, such as `cuda:0`. The constructor starts it.

    `hidden` are paths that no candidate may read. `threads` is the number of OpenMP threads if the environment does not
    set OMP_NUM_THREADS; None leaves the number to OpenMP.
    """

    def __init__(
        self, device: str, settings: Settings, hidden: Sequence[Path], folder: SuiteFolder, threads: int | None = None
    ) -> None:
        ours, theirs = Pipe()
        super().__init__(ours)
        self._device = device
        own = Path(tempfile.mkdtemp(prefix="worker-", dir=folder.path))
        self._errors = (folder.path / f"{own.name}.err").open("wb+")
        # Otherwise torch leaves an empty folder among the temporary files.
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(own / "torchinductor"), "PYTHONPATH": python_path()}
        if threads is not None:
            environment.setdefault("OMP_NUM_THREADS", str(threads))
        self.process = subprocess.Popen(
            [sys.executable, *PROGRAM, str(theirs.fileno()), device, str(own)],
            pass_fds=[theirs.fileno(), folder.lock.fileno()], env=environment, stdin=subprocess.DEVNULL,
            stdout=self._errors, stderr=self._errors, start_new_session=True,
        )  # fmt: skip
        theirs.close()
        with suppress(OSError):
            # Not in the command line, which every process of the user can read: the settings have the secret seed.
            ours.send((settings, hidden))

    def _send(self, task: Task) -> None:
        candidate = replace(task.candidate, path=task.candidate.path.absolute())
        with suppress(OSError):
            self.connection.send(Task(task.problem, candidate))

    def interrupt(self) -> None:
        """Ends the connection, which ends the process."""
        with suppress(OSError), socket.socket(fileno=os.dup(self.connection.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        """Kills the process and every process below it."""
        with suppress(psutil.NoSuchProcess):
            below = process_tree.below(self.process.pid)
            self.process.kill()
            for process in below:
                process_tree.kill(process)

    def close(self) -> str:
        """Waits until the process has ended, and kills it if that takes too long. Returns how, and its last output."""
        try:
            code = self.process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            self.kill()
            code = self.process.wait()
        self.connection.close()
        with self._errors:
            self._errors.seek(0)
            text = self._errors.read().decode(errors="replace").strip()[-_LONGEST_ERROR:]
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"The device worker on {self._device} ended with {how}. {text}".strip()
