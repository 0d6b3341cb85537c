"""Starts fork servers as forks of one process that has imported torch, which saves each 1.5 s of CPU time.

Each fork server is a child process of the starter, with the working directory, variables, descriptors and session that
it would have as a new process. The starter also has the modules that the program of the fork server imports at its
beginning, so it serves only this checkout. Tests of the wall, of cheats and of a GPU start them as new processes, but
for test_layers.py.
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
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

if __package__:
    from . import start_variables
else:  # in the starter, whose program is this file
    import start_variables  # type: ignore[import-not-found, no-redef]

_ROOT = Path(__file__).resolve().parents[2]
_MODULE = "kernel_harness.worker.fork_server"
_LONGEST_MESSAGE = 1 << 20


class Started:
    """A fork server under way, with the methods of subprocess.Popen that its handle calls."""

    def __init__(self, address: str, pid: int) -> None:
        self.pid, self._address = pid, address
        self._end = os.pidfd_open(pid)
        weakref.finalize(self, os.close, self._end)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._end, signal.SIGKILL)

    def wait(self) -> None:
        """Returns when the process has ended and the starter, its parent, has removed it: it is no zombie."""
        end = select.poll()
        end.register(self._end, select.POLLIN)
        end.poll()
        with suppress(ConnectionError):  # the starter has ended, so the process has another parent
            _ask(self._address, {})


def install(address: str) -> None:
    """Lets this process start its fork servers by the starter at `address`."""
    from kernel_harness.workers import fork_server_process

    fork_server_process.subprocess = SimpleNamespace(  # type: ignore[attr-defined]
        Popen=functools.partial(_popen, address), DEVNULL=subprocess.DEVNULL
    )


def take_back() -> None:
    """Lets this process start its fork servers as new processes."""
    from kernel_harness.workers import fork_server_process

    fork_server_process.subprocess = subprocess  # type: ignore[attr-defined]


def _popen(
    address: str, command: Sequence[str], *, pass_fds: Sequence[int], env: Mapping[str, str], cwd: Path, **more: Any
) -> Any:
    if list(command[1:3]) == ["-m", _MODULE]:
        request = {"argument": command[3], "environment": dict(env), "cwd": str(cwd)}
        if pid := _ask(address, request, [1, 2, *pass_fds]):
            return Started(address, pid)
    return subprocess.Popen(command, pass_fds=pass_fds, env=env, cwd=cwd, **more)


def _ask(address: str, request: Mapping[str, Any], descriptors: Sequence[int] = ()) -> int:
    """The starter's answer to a request; 0 from a starter that has ended meanwhile."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        asking.connect(address)
        socket.send_fds(asking, [json.dumps(request).encode()], descriptors)
        return int(asking.recv(100) or 0)


@functools.cache
def address() -> str:
    """Where the starter of this test process listens. The first call starts it."""
    name = f"\0kernel-harness-tests-{os.getpid()}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(name)
    listener.listen()
    from kernel_harness.workers import fork_server_process

    starter = subprocess.Popen(
        [sys.executable, __file__, str(listener.fileno())], env=fork_server_process.environment(Path("/nonexistent")),
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[listener.fileno()],
    )  # fmt: skip
    listener.close()

    def close() -> None:
        assert starter.stdin
        starter.stdin.close()
        starter.wait()

    atexit.register(close)
    return name


def _collect(*_: object) -> None:
    """Removes children that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _serve(listener: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Answers requests until the tests end. Returns in each child, with its request and its descriptors.

    The answer is the child's process ID. It is 0 for another checkout, and if a variable that is read at the start has
    another value in this process.
    An empty request is answered with 0 when all children that have ended are removed.
    """
    signal.signal(signal.SIGCHLD, _collect)
    while True:
        if sys.stdin in select.select([listener, sys.stdin], [], [])[0]:
            os._exit(0)
        asking, _ = listener.accept()
        text, descriptors, _, _ = socket.recv_fds(asking, _LONGEST_MESSAGE, 3)
        request: dict[str, Any] = json.loads(text)
        child = 0
        if not request:
            _collect()
        elif request["cwd"] == str(_ROOT) and start_variables.same(request["environment"], os.environ):
            child = os.fork()
            if not child:
                return request, descriptors
        for descriptor in descriptors:
            os.close(descriptor)
        asking.send(str(child).encode())
        asking.close()


def _become(request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Runs a fork server in this process."""
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    channel = int(request["argument"])
    # Above all numbers that the loop below writes to.
    copies = [os.dup(os.open(os.devnull, os.O_RDONLY)), *descriptors]
    for number in range(100, 104):
        os.dup2(copies[number - 100], number)
    for number, copy in zip((0, 1, 2, channel), range(100, 104), strict=True):
        os.dup2(copy, number)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        if int(name) not in (0, 1, 2, channel):
            with suppress(OSError):
                os.close(int(name))
    sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    sys.argv = [_MODULE, request["argument"]]
    sys.path[0] = request["cwd"]
    runpy.run_module(_MODULE, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches this process too
    sys.path[0] = str(_ROOT)
    # So that every fork has them. torch.utils.cpp_extension, which reads variables at its import, imports setuptools.
    import psutil  # noqa: F401
    import setuptools  # noqa: F401
    import torch  # noqa: F401

    from kernel_harness import device, sandbox  # noqa: F401
    from kernel_harness.ipc import messages  # noqa: F401
    from kernel_harness.worker import reaper  # noqa: F401

    assert not {_MODULE, "torch.utils.cpp_extension"} & sys.modules.keys()

    assert len([*Path("/proc/self/task").iterdir()]) == 1, "a fork would lack the threads that torch started"
    gc.freeze()  # else the first collection in each fork would copy the memory of all objects
    _become(*_serve(socket.socket(fileno=int(sys.argv[1]))))
