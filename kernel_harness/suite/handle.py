"""The driver's handle of one evaluator process."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

from kernel_harness.core import process_tree
from kernel_harness.core.paths import python_path
from kernel_harness.suite import messages
from kernel_harness.suite.collection import Task
from kernel_harness.suite.messages import Finish, Judge, Message
from kernel_harness.suite.workplace import Workplace

PROGRAM = ("-m", "kernel_harness.suite.evaluator_process")
"""The words after `python` that start an evaluator."""
_CHUNK = 1 << 20
# An evaluator that was told to end kills its processes and removes its files in this time.
_ENDING_S = 30.0
_LONGEST_ERROR = 4000


class Evaluator:
    """An evaluator process, which the constructor starts. `number` distinguishes it from the other evaluators.

    `in_flight` has its unfinished tasks by the number of the request. `began` is the number of the request whose checks
    have begun, or None. `heard_at` is a time by `time.monotonic`: when the evaluator last sent something, or when a
    task was last sent to it while it had no unfinished task, whichever is later.
    """

    def __init__(self, number: int, device: str, parameters: str, workplace: Workplace, threads: int | None) -> None:
        self.number, self.device = number, device
        self.ready = False
        self.in_flight: dict[int, Task] = {}
        self.began: int | None = None
        self.heard_at = time.monotonic()
        self._folder = Path(tempfile.mkdtemp(prefix="evaluator-", dir=workplace.folder))
        self._errors = (workplace.folder / f"{self._folder.name}.err").open("wb+")
        self._rest = b""
        self._requests = itertools.count()
        self.socket, theirs = socket.socketpair()
        # Otherwise torch leaves an empty folder among the temporary files.
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(self._folder / "torchinductor")}
        environment["PYTHONPATH"] = python_path()
        if threads is not None:
            environment.setdefault("OMP_NUM_THREADS", str(threads))
        descriptor = str(theirs.fileno())
        self._process = subprocess.Popen(
            [sys.executable, *PROGRAM, descriptor, device, str(self._folder)],
            pass_fds=[theirs.fileno(), workplace.lock], env=environment, stdin=subprocess.PIPE,
            stdout=self._errors, stderr=self._errors, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdin is not None
        # The parameters contain the secret seed. Every process of the user can read a command line.
        with suppress(BrokenPipeError), self._process.stdin as given:
            given.write(parameters.encode())
        theirs.close()

    @property
    def pid(self) -> int:
        """The process number of the evaluator."""
        return self._process.pid

    def send(self, task: Task) -> None:
        """Sends a task. Raises no error if the evaluator has ended: `receive` then returns None."""
        one, request = task.candidate, next(self._requests)
        if not self.in_flight:
            self.heard_at = time.monotonic()
        self.in_flight[request] = task
        problem = task.problem
        self._send(Judge(request, problem.name, str(problem.path), one.name, str(one.path.absolute()), one.source))

    def receive(self) -> list[Message] | None:
        """Returns the messages that have arrived completely, or None if the evaluator has ended.

        Waits for at least one byte. The list is empty if no message is complete yet.
        """
        try:
            data = self.socket.recv(_CHUNK)
        except ConnectionResetError:
            data = b""
        if not data:
            return None
        self.heard_at = time.monotonic()
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [messages.from_line(line) for line in lines]

    def finish(self) -> None:
        """Tells the evaluator to end after the candidate that it judges."""
        self._send(Finish())

    def interrupt(self) -> None:
        """Tells the evaluator to end at once. It first ends all its processes and removes its files."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        """Kills the evaluator and every process below it."""
        with suppress(psutil.NoSuchProcess):
            below = process_tree.below(self._process.pid)
            self._process.kill()
            for process in below:
                process_tree.kill(process)

    def close(self, patience_s: float = _ENDING_S) -> None:
        """Waits until the evaluator has ended, for at most `patience_s` seconds, and kills it if it has not."""
        self._ended(patience_s)
        self.socket.close()
        self._errors.close()

    def last_words(self) -> str:
        """Waits for the end of the process as `close` does. Returns how it ended, and the end of its output."""
        code = self._ended(_ENDING_S)
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace").strip()[-_LONGEST_ERROR:]
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"The evaluator process on {self.device} ended with {how}. {text}".strip()

    def _ended(self, patience_s: float) -> int:
        try:
            return self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.wait()

    def _send(self, message: Message) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(messages.to_line(message))
