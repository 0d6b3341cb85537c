"""Builds libraries for workers. Each build runs in its own worker; the judge copies the library to the build cache.

A candidate chooses compiler flags, and flags can run code. In a separate worker behind the wall, such code finds
nothing to change: from this worker the judge takes only one file, the library, and a list of the files that the build
has read. A false list can only make the judge use an old library of these same sources, or build them again.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuda_on_cpu.compile import cache, read_files, sources
from cuda_on_cpu.compile.errors import BuildFailed, CompilerFailed, UnsupportedConstruct
from cuda_on_cpu.compile.sources import Sources
from kernel_harness.core.errors import EnvironmentLacking
from kernel_harness.device import Device
from kernel_harness.ipc.build_messages import Build, Built, Library
from kernel_harness.ipc.envelope import Received
from kernel_harness.ipc.messages import Failure, Stage
from kernel_harness.workers.process import Limits, WorkerFactory, WorkerMisbehaved

_MAX_LIBRARY_BYTES, _COPIED_BYTES = 1 << 30, 1 << 20
# What a building worker raises for sources that cannot be built. Other errors may pass, such as a full disk.
_OF_SOURCES = (BuildFailed.__name__, CompilerFailed.__name__, UnsupportedConstruct.__name__)
_LIBRARY_NAME = re.compile(r"\w[\w.-]{0,199}\.so", re.ASCII)


FailedBuilds = MutableMapping[str, Failure]
"""The failures of sources that cannot be built, by the build cache's key of their library."""


@dataclass(frozen=True)
class BuildResult:
    """The result of a build: `answer` is the message for the worker that asked for it.

    `cached` says whether the library was in the build cache; it is False for a failed build.
    """

    answer: Built | Failure
    cached: bool = False


class BuildService:
    """Builds libraries for one device. Starts a worker for each build that is not in the build cache.

    `factory` starts these workers, and `limits` are the time, task and memory limits of each one. `shared_s` is the
    time in seconds that was spent so far to prepare what all candidates share.
    """

    def __init__(self, factory: WorkerFactory, device: Device, limits: Limits) -> None:
        self._factory, self._device, self._limits = factory, device, limits
        self.shared_s = 0.0

    def build(self, asked: Any, timeout_s: float, failed: FailedBuilds | None = None) -> BuildResult:
        """Builds the sources that a worker asked for, or finds their library in the build cache. Returns the result.

        `asked` is the JSON that the worker sent, which may be anything. `timeout_s` is the time limit in seconds of the
        building worker, and of a second one if the first needs torch's full headers. A failed build, or malformed JSON,
        is a result and not an exception. If the sources are the cause, the failure is added to `failed`. A build whose
        failure is in `failed` is not tried again. A library is in use (`cache.get_or_build`) until the caller releases
        its folder. Raises WorkerFailed if the building worker gave no valid reply, and EnvironmentLacking if the cache
        cannot be used.
        """
        failed = {} if failed is None else failed
        key = ""
        try:
            wanted = sources.from_json(asked)
            key = self._device.build_key(wanted)
            if key in failed:
                return BuildResult(failed[key])
            folder, cached = cache.get_or_build(
                f"{self._device.name_in_workers.split(':')[0]}-extensions",
                key,
                lambda folder: self._build_into(folder, wanted, timeout_s),
            )
        except sources.Unreadable as error:
            return BuildResult(_failure(f"load_inline: {error}."))
        except _NoLibrary as error:
            if error.failure.type in _OF_SOURCES:
                failed[key] = error.failure
            return BuildResult(error.failure)
        except OSError as error:
            raise EnvironmentLacking(
                f"The build cache in {cache.root()} cannot be used: {error}. Free disk space or correct the "
                "permissions there, or set $KERNEL_HARNESS_CACHE to another folder."
            ) from None
        return BuildResult(Built(str(next(folder.glob("*.so")))), cached)

    def _build_into(self, folder: Path, wanted: Sources, timeout_s: float) -> Sequence[str]:
        """Has the library built in a worker and copies it to `folder`. Returns the paths of the files that were read.

        Returns UNKNOWN if there are too many. Raises _NoLibrary if the build fails, WorkerFailed if the worker gives
        no valid reply, and OSError if `folder` cannot be written.
        """
        # During a long run, the cache may have evicted the files that all builds share. The building worker cannot
        # write to the cache, so the judge restores the files.
        self._share(self._device.prepare)
        request = Build(self._device.name_in_workers, sources.to_json(wanted))
        received = self._ask(request, timeout_s)
        if isinstance(received.message, Failure) and received.message.stage is Stage.FULL_HEADERS:
            received.close()
            self._share(self._device.prepare_full_headers)
            received = self._ask(request, timeout_s)
        try:
            reply = received.message
            if isinstance(reply, Failure):
                raise _NoLibrary(reply)
            if not isinstance(reply, Library) or not _LIBRARY_NAME.fullmatch(reply.name):
                raise WorkerMisbehaved("The building process sent a malformed message: no valid name of a library.")
            if len(received.descriptors) != 1:
                raise WorkerMisbehaved("The building process must send exactly one file descriptor, the library's.")
            _copy(received.descriptors[0], folder / reply.name)
            return (read_files.UNKNOWN,) if reply.read is None else reply.read
        finally:
            received.close()

    def _share(self, prepare: Callable[[], None]) -> None:
        start = time.monotonic()
        prepare()
        self.shared_s += time.monotonic() - start

    def _ask(self, request: Build, timeout_s: float) -> Received[Any]:
        """Sends the request to a new worker, and returns the reply."""
        with self._factory.spawn(self._limits) as worker:
            return worker.request(request, Library, timeout_s=timeout_s)


class _NoLibrary(Exception):
    """The exception raised if the worker that builds the library reports that the build has failed.

    `failure` is the message for the worker that asked for the library.
    """

    def __init__(self, reply: Failure) -> None:
        super().__init__(reply.message)
        stage = reply.stage if reply.stage is Stage.UNSUPPORTED else Stage.BUILD
        message = reply.message or "The build gave no error message."
        self.failure = _failure(message, reply.log, stage, reply.type)


def _failure(message: str, log: str = "", stage: Stage = Stage.BUILD, type: str = "") -> Failure:
    return Failure(stage, type=type, message=message, line=None, log=log, refusal=False)


def _copy(descriptor: int, target: Path) -> None:
    """Copies the library from an open descriptor to the file `target`.

    The worker that built the library has ended and cannot change it any more. Raises WorkerMisbehaved if the descriptor
    is not a regular file, if its size is 0 or more than 1 GiB, or if fewer bytes than its size can be read. Size 0 is
    refused because a file of the Linux kernel can have it, such as a log that blocks its reader until the next line.
    Raises OSError only if `target` cannot be written.
    """
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or not 0 < found.st_size <= _MAX_LIBRARY_BYTES:
        raise WorkerMisbehaved("The building process sent a library that is not a regular file of 1 byte to 1 GiB.")
    cache.make_room(found.st_size)
    with target.open("wb") as copy:
        while (place := copy.tell()) < found.st_size:
            copy.write(_part(descriptor, place, found.st_size))


def _part(descriptor: int, start: int, end: int) -> bytes:
    """Returns bytes of the library from `start` on, at most 1 MiB and none from `end` on.

    Raises WorkerMisbehaved if there are no such bytes, or if the system cannot read them: the worker may have sent a
    file of the Linux kernel with a size above 0.
    """
    try:
        part = os.pread(descriptor, min(_COPIED_BYTES, end - start), start)
    except OSError as error:
        raise WorkerMisbehaved(f"The building process sent a library that cannot be read: {error}.") from None
    if not part:
        raise WorkerMisbehaved("The building process sent a library that is shorter than its size.")
    return part
