"""The probe of the wall. A worker tries everything that the wall must prevent, and the judge looks for the effects.

`Bait` runs in the judge and `attempt` in the worker. So a result records what the wall really prevented, not what it
was configured to prevent.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import secrets
import select
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel_harness.ipc.process_messages import Probe, Probed, ProcessId

_CONNECT_TIMEOUT_S = 1.0


class Bait:
    """The targets that the judge sets up for the probe: a secret in its memory, a listening port, and file names.

    `fork_server` is the fork server's process number. `folders` maps the word that a message uses for a folder, such as
    `build cache`, to the folder's path; a missing folder is left out. A `with` block opens the port at its start. At
    its end, it closes the port and removes the files that the worker made.
    """

    def __init__(self, fork_server: int, folders: Mapping[str, Path]) -> None:
        self._folders = {what: path for what, path in folders.items() if path.is_dir()}
        self._fork_server = fork_server
        self._secret = ctypes.create_string_buffer(secrets.token_bytes(32), 32)
        self._name = f".probe-{secrets.token_hex(8)}"

    def __enter__(self) -> Bait:
        self._server = socket.create_server(("127.0.0.1", 0))
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        for folder in self._folders.values():
            (folder / self._name).unlink(missing_ok=True)

    def request(self) -> Probe:
        """Returns the request that tells the worker its targets."""
        return Probe(
            judge=_process(os.getpid()),
            fork_server=_process(self._fork_server),
            address=ctypes.addressof(self._secret),
            files=tuple(str(folder / self._name) for folder in self._folders.values()),
            port=self._server.getsockname()[1],
        )

    def gaps(self, reply: Probed) -> list[str]:
        """Returns what the wall did not prevent, as phrases such as `kill the judge`.

        The worker's `reply` shows what the worker could read and signal. This method itself looks for files and
        connections that the worker made. The list is empty if the wall prevented everything.
        """
        found = []
        if reply.environment == _digest(Path("/proc/self/environ").read_bytes()):
            found.append("read the judge's environment")
        if reply.memory == _digest(self._secret.raw):
            found.append("read the judge's memory")
        found += ["kill the judge"] if reply.signals_judge else []
        found += ["kill the fork server"] if reply.signals_fork_server else []
        found += [f"write to the {what}" for what, folder in self._folders.items() if (folder / self._name).exists()]
        if select.select([self._server], [], [], 0)[0]:
            found.append("open a connection")
        return found


def attempt(request: Probe) -> Probed:
    """Tries everything that the wall must prevent, and returns what succeeded. Runs in the worker.

    `request` has the targets. An attempt that succeeds does no harm.
    """
    judge = request.judge
    for path in map(Path, request.files):
        _tried(path.touch)
    _tried(lambda: socket.create_connection(("127.0.0.1", request.port), _CONNECT_TIMEOUT_S).close())
    return Probed(
        environment=_tried(lambda: _digest(Path(f"/proc/{judge.pid}/environ").read_bytes())),
        memory=_tried(lambda: _digest(_read_memory(judge.pid, request.address, 32))),
        signals_judge=_tried(lambda: _can_signal(judge)) is True,
        signals_fork_server=_tried(lambda: _can_signal(request.fork_server)) is True,
    )


def _tried(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except OSError:
        return None


def _can_signal(process: ProcessId) -> bool:
    """Returns whether this process may send a signal to `process`. Raises OSError if the system refuses the signal.

    Inside another process namespace, a different process may have the number of `process`. So the function also
    compares the start times, and returns False if they differ. If /proc does not show the start time, it returns True.
    """
    os.kill(process.pid, 0)
    return _started(process.pid) in (process.started, None)


def _process(pid: int) -> ProcessId:
    return ProcessId(pid, _started(pid))


def _started(pid: int) -> int | None:
    """Returns the start time of a process in clock ticks since boot; None if /proc does not show the process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return None


def _read_memory(pid: int, address: int, count: int) -> bytes:
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(count)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def describe(kind: str, gaps: Sequence[str]) -> str:
    """Returns the text that results record about the wall: its kind, and `gaps`, what it did not prevent."""
    return f"{kind}; not stopped: {', '.join(gaps)}" if gaps else kind
