"""Finds out what the wall is worth: a worker tries what it must not be able to do, and the judge looks what came of it.

The judge's half is `Bait`; the worker's is `attempt`. What is recorded is what was seen, not what was asked for.
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

_PATIENCE_S = 1.0


class Bait:
    """What the judge lays out. As a context manager it takes it away again."""

    def __init__(self, template: int, folders: Mapping[str, Path]) -> None:
        self._folders = {what: path for what, path in folders.items() if path.is_dir()}
        self._template = template
        self._secret = ctypes.create_string_buffer(secrets.token_bytes(32), 32)
        self._name = f".probe-{secrets.token_hex(8)}"

    def __enter__(self) -> Bait:
        self._server = socket.create_server(("127.0.0.1", 0))
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()
        for folder in self._folders.values():
            (folder / self._name).unlink(missing_ok=True)

    def message(self) -> dict[str, Any]:
        """What the worker is told."""
        return {
            "do": "probe", "judge": [os.getpid(), _started(os.getpid())],
            "template": [self._template, _started(self._template)], "address": ctypes.addressof(self._secret),
            "files": [str(folder / self._name) for folder in self._folders.values()],
            "port": self._server.getsockname()[1],
        }  # fmt: skip

    def gaps(self, reply: Mapping[str, Any]) -> list[str]:
        """What got through, in words."""
        found = []
        if reply.get("environment") == _digest(Path("/proc/self/environ").read_bytes()):
            found.append("read the judge's environment")
        if reply.get("memory") == _digest(self._secret.raw):
            found.append("read the judge's memory")
        found += [f"kill the {who}" for who in ("judge", "template") if reply.get(f"kill {who}") is True]
        found += [f"write to the {what}" for what, folder in self._folders.items() if (folder / self._name).exists()]
        if select.select([self._server], [], [], 0)[0]:
            found.append("open a connection")
        return found


def attempt(message: Mapping[str, Any]) -> dict[str, Any]:
    """Tries everything. Nothing it does harms anybody."""
    pid, _ = message["judge"]
    for path in map(Path, message["files"]):
        _tried(path.touch)
    _tried(lambda: socket.create_connection(("127.0.0.1", message["port"]), _PATIENCE_S).close())
    return {
        "environment": _tried(lambda: _digest(Path(f"/proc/{pid}/environ").read_bytes())),
        "memory": _tried(lambda: _digest(_peek(pid, message["address"], 32))),
        "kill judge": _tried(lambda: _reachable(*message["judge"])),
        "kill template": _tried(lambda: _reachable(*message["template"])),
    }


def _tried(action: Callable[[], Any]) -> Any:
    try:
        return action()
    except OSError:
        return None


def _reachable(pid: int, started: int | None) -> bool:
    """Whether the very process can be sent a signal; in another namespace its number may be another's."""
    os.kill(pid, 0)
    return _started(pid) in (started, None)


def _started(pid: int) -> int | None:
    """When a process began, in ticks since boot; None where that is not shown."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return None


def _peek(pid: int, address: int, count: int) -> bytes:
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        memory.seek(address)
        return memory.read(count)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def describe(kind: str, gaps: Sequence[str]) -> str:
    """As results record it."""
    return f"{kind}; not stopped: {', '.join(gaps)}" if gaps else kind
