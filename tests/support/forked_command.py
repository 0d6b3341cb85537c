"""Starts Python programs as forks of one process that has imported torch, which saves each 3 s of CPU time.

The server process imports torch and what a run of the command imports of other libraries, but nothing of the harness.
Each program is a child process of the server with its own working directory, environment and pipes. It receives signals
as if it had been started by itself.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

if __package__:
    from . import start_variables, warm_fork_server
else:  # in the server, whose program is this file
    import start_variables  # type: ignore[import-not-found, no-redef]
    import warm_fork_server  # type: ignore[import-not-found, no-redef]

_LONGEST_MESSAGE = 1 << 20


# The harness sets it as soon as it is imported, unless the other variable is set.
OPENMP = {} if "OMP_WAIT_POLICY" in os.environ else {"GOMP_SPINCOUNT": "1000"}
# The server has the environment that the tests were started with. Code under test sets variables later.
# With more OpenMP threads than one the libraries below torch start threads, which a fork lacks.
SERVER_ENVIRONMENT = {**OPENMP, **os.environ, "OMP_NUM_THREADS": "1"}


def fits(environment: Mapping[str, str]) -> bool:
    """Whether a fork is the same as a new process: Python and torch would read the same variables when they start."""
    return start_variables.same(environment, SERVER_ENVIRONMENT)


class ForkedCommand:
    """A Python program under way in a fork, with the methods of subprocess.Popen in text mode.

    If `warm`, the program is the harness's command and starts its fork servers as forks, too.

    Its standard input is empty, and its standard output and standard error are pipes.
    """

    def __init__(
        self, script: Path, arguments: Sequence[str | Path], cwd: Path, environment: Mapping[str, str],
        warm: bool = False,
    ) -> None:  # fmt: skip
        self.args = [str(script), *map(str, arguments)]
        ours, theirs = zip(os.pipe(), os.pipe(), strict=True)
        nothing = os.open(os.devnull, os.O_RDONLY)
        request = {"argv": self.args, "cwd": str(cwd), "environment": dict(environment)}
        request["fork_servers"] = warm_fork_server.address() if warm else ""
        self.pid = _server().ask(request, [nothing, *theirs])
        for descriptor in (nothing, *theirs):
            os.close(descriptor)
        self.returncode: int | None = None
        self.stdout, self.stderr = (open(end) for end in ours)  # noqa: SIM115, PTH123 - communicate() closes them
        self._end = os.pidfd_open(self.pid)
        self._texts: list[Future[str]] = []

    def poll(self) -> int | None:
        """The exit status, or None while the program runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, negative after a signal. Raises TimeoutExpired after `timeout` seconds."""
        if self.returncode is None:
            end = select.poll()
            end.register(self._end, select.POLLIN)
            if not end.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = _server().ask({"reap": self.pid})
            os.close(self._end)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """The rest of standard output and standard error, at the end. Raises TimeoutExpired after `timeout` seconds."""
        if not self._texts:
            pool = ThreadPoolExecutor(2)
            self._texts = [pool.submit(_rest, stream) for stream in (self.stdout, self.stderr)]
            pool.shutdown(wait=False)
        if wait(self._texts, timeout).not_done:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(timeout)
        return self._texts[0].result(), self._texts[1].result()

    def send_signal(self, number: int) -> None:
        """Sends a signal, if the program still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Sends SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)


def run(
    script: Path, arguments: Sequence[str | Path], cwd: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A Python program from start to end, as `subprocess.run` with `capture_output` and `text`."""
    environment = os.environ if environment is None else environment
    if not fits(environment):
        command = [sys.executable, script, *arguments]
        return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    process = ForkedCommand(script, arguments, cwd, environment)
    stdout, stderr = process.communicate()
    return subprocess.CompletedProcess(process.args, process.wait(), stdout, stderr)


def _rest(stream: Any) -> str:
    with stream:
        text: str = stream.read()
        return text


class _Server:
    """The server, in the process of the tests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, __file__, str(theirs.fileno())]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, env=SERVER_ENVIRONMENT, stdin=quiet, stdout=quiet, pass_fds=[theirs.fileno()]
        )
        theirs.close()
        atexit.register(self._close)

    def ask(self, request: Mapping[str, Any], descriptors: Sequence[int] = ()) -> int:
        """The server's answer: the process ID of a program that was started, or the exit status of one that ended."""
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], list(descriptors))
            return int(self._socket.recv(100))

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()


@functools.cache
def _server() -> _Server:
    return _Server()


def _serve(end: socket.socket) -> dict[str, Any]:
    """Answers requests. Returns in each child, with the request for the program that the child shall be."""
    while True:
        text, descriptors, _, _ = socket.recv_fds(end, _LONGEST_MESSAGE, 3)
        if not text:
            os._exit(0)
        request: dict[str, Any] = json.loads(text)
        if "reap" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["reap"], 0)[1])
        else:
            answer = os.fork()
            if not answer:
                end.close()
                for number, descriptor in enumerate(descriptors):
                    os.dup2(descriptor, number)
                    os.close(descriptor)
                return request
            for descriptor in descriptors:
                os.close(descriptor)
        end.send(str(answer).encode())


def _become(request: Mapping[str, Any]) -> None:
    """Runs the program of a request in this process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115 - Python's own streams keep how the server's files were
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    sys.argv = request["argv"]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    if request["fork_servers"]:
        warm_fork_server.install(request["fork_servers"])
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    # Ctrl-C in a terminal reaches the server too. The programs in its forks handle it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # So that every fork has them. torch imports the last one, and with it SymPy, when it computes a shape.
    import pandas  # noqa: F401
    import setuptools  # noqa: F401
    import torch
    import torch.fx.experimental.symbolic_shapes  # noqa: F401

    assert len([*Path("/proc/self/task").iterdir()]) == 1, "a fork would lack the threads that torch started"
    gc.freeze()  # else the first collection in each fork would copy the memory of all objects
    _become(_serve(socket.socket(fileno=int(sys.argv[1]))))
