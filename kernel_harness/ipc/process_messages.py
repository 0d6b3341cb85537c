"""The messages about processes: between judge and fork server, and the test of the wall around a worker."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Annotated

from kernel_harness.ipc.schema import AtMost, Message

PLACE_SIGNALS = signal.SIGUSR1, signal.SIGUSR2
"""At the first, a worker prints the lines of Python that it runs; at the second, the addresses of its machine code."""
_Digest = Annotated[str, AtMost(64)]


@dataclass(frozen=True)
class PrepareDevice(Message):
    """A request to the fork server: make the preparations for a device that later workers inherit. The reply is Done.

    `device` is the device's name. The fork server first sets the environment variables in `environment`.
    """

    device: str
    environment: dict[str, str]


@dataclass(frozen=True)
class SetWall(Message):
    """A request to the fork server: put a wall of the kind `kind` around workers that start later. The reply is Done.

    `kind` is the value of a `sandbox.Kind`. `hidden` has the absolute paths that the wall hides from workers.
    """

    kind: str
    hidden: tuple[str, ...]


@dataclass(frozen=True)
class Fork(Message):
    """A request to the fork server: start a worker. The reply is Forked.

    `folder` is the absolute path of the worker's own folder. Two descriptors come with the request: the worker's end of
    its channel to the judge, and the pipe that receives what the worker prints.
    """

    folder: str


@dataclass(frozen=True)
class Forked(Message):
    """The reply to Fork: the process number of the new worker's reaper, in the fork server's process namespace."""

    pid: int


@dataclass(frozen=True)
class GetExitStatus(Message):
    """A request to the fork server: how did a worker end? The reply is ExitStatus.

    `pid` is the process number that the reply Forked gave for this worker.
    """

    pid: int


@dataclass(frozen=True)
class ExitStatus(Message):
    """The reply to GetExitStatus: the worker's wait status, or None while the worker runs.

    A wait status is the second value that `os.waitpid` returns.
    """

    status: int | None


@dataclass(frozen=True)
class ProcessId(Message):
    """Identifies a process: `pid` is its number, `started` is its start time in clock ticks since boot.

    `started` distinguishes two processes that have the same number. It is None if /proc does not show the process.
    """

    pid: int
    started: int | None


@dataclass(frozen=True)
class Probe(Message):
    """A request to a worker: try everything that the wall must prevent. The reply is Probed.

    The worker tries to signal the processes `judge` and `fork_server`, to read the environment variables of `judge`,
    and to read the 32 secret bytes at `address` in the memory of `judge`. It also tries to create a file at each path
    in `files`, and to connect to the local TCP port `port`, on which the judge listens.
    """

    judge: ProcessId
    fork_server: ProcessId
    address: int
    files: tuple[str, ...]
    port: int


@dataclass(frozen=True)
class Probed(Message):
    """The reply to Probe: what the worker could read and signal behind the wall.

    `environment` and `memory` are SHA-256 digests of the judge's environment and of the secret in the judge's memory as
    the worker read them, or None if the worker could not read them. `signals_judge` and `signals_fork_server` say
    whether the worker may send a signal to the judge and to the fork server. The judge itself looks for the files and
    the connection that the worker made.
    """

    environment: _Digest | None
    memory: _Digest | None
    signals_judge: bool
    signals_fork_server: bool
