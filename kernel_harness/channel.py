"""Messages and shared memory between judge and worker. Nothing here trusts the other side, or knows what is said."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import mmap
import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

# A candidate's file and the sources that it builds, escaped, with room to spare.
MAX_MESSAGE_BYTES = 8 << 20
MAX_DESCRIPTORS = 4
_LENGTH = struct.Struct("<I")
# From linux/fcntl.h; the fcntl module of Python 3.11 lacks these names.
_F_ADD_SEALS = 1033
_SEAL_SEAL, _SEAL_SHRINK, _SEAL_GROW, _SEAL_FUTURE_WRITE = 1, 2, 4, 16

Message = dict[str, Any]


class Malformed(Exception):
    """The other side said something that is no message."""


class Closed(Exception):
    """The other side is gone."""


class Channel:
    """One end of a socket pair: JSON objects of at most MAX_MESSAGE_BYTES, with descriptors beside them."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def fileno(self) -> int:
        """The socket's descriptor, for select."""
        return self._socket.fileno()

    def close(self) -> None:
        """Closes this end; the other one reads an end of file."""
        self._socket.close()

    def send(self, message: Message, descriptors: Sequence[int] = (), timeout_s: float | None = None) -> None:
        """Sends one message. Raises Closed, TimeoutError, or ValueError where it is too long."""
        body = json.dumps(message, allow_nan=False).encode()
        if len(body) > MAX_MESSAGE_BYTES:
            raise ValueError(f"a message of {len(body)} bytes; the limit is {MAX_MESSAGE_BYTES}")
        data = _LENGTH.pack(len(body)) + body
        self._socket.settimeout(timeout_s)
        try:
            sent = socket.send_fds(self._socket, [data], list(descriptors)) if descriptors else 0
            self._socket.sendall(data[sent:])
        except TimeoutError:
            raise
        except OSError as error:
            raise Closed(str(error)) from None

    def receive(self, timeout_s: float | None = None) -> tuple[Message, list[int]]:
        """The next message and its descriptors, which the caller closes. Raises Malformed, Closed, TimeoutError."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        descriptors: list[int] = []
        try:
            (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size, descriptors, deadline))
            if length > MAX_MESSAGE_BYTES:
                raise Malformed(f"a message of {length} bytes; the limit is {MAX_MESSAGE_BYTES}")
            return _parse(self._exactly(length, descriptors, deadline)), descriptors
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise

    def _exactly(self, count: int, descriptors: list[int], deadline: float | None) -> bytes:
        parts = b""
        while len(parts) < count:
            wait = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._socket], [], [], wait)[0]:
                raise TimeoutError
            try:
                data, fds, flags, _ = socket.recv_fds(self._socket, count - len(parts), MAX_DESCRIPTORS)
            except OSError as error:
                raise Closed(str(error)) from None
            descriptors += fds
            for descriptor in fds:
                os.set_inheritable(descriptor, False)  # recv_fds drops the flag that would say so
            if len(descriptors) > MAX_DESCRIPTORS or flags & socket.MSG_CTRUNC:
                raise Malformed(f"a message with more than {MAX_DESCRIPTORS} descriptors")
            if not data:
                raise Closed("end of file")
            parts += data
        return parts


def _parse(body: bytes) -> Message:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    def finite(digits: str) -> float:
        number = float(digits)
        if not math.isfinite(number):
            raise ValueError(f"{digits} is too large")
        return number

    try:
        message = json.loads(body, parse_constant=refuse, parse_float=finite)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"no JSON: {error}") from None
    if not isinstance(message, dict):
        raise Malformed("a message must be a JSON object")
    return message


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


class SharedBuffer:
    """Memory of a fixed size that two processes see: sealed, so that no holder can shrink it under a reader."""

    def __init__(self, size: int) -> None:
        self.size = max(1, size)
        self.descriptor = os.memfd_create("kernel-harness", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, self.size)
        fcntl.fcntl(self.descriptor, _F_ADD_SEALS, _SEAL_SHRINK | _SEAL_GROW)
        self.memory = mmap.mmap(self.descriptor, self.size)
        self._sealed = False

    def read_only(self) -> int:
        """A descriptor of the same memory, which from now on nobody else can write to; the caller closes it.

        That the descriptor is read-only is not enough: its holder could open it again through /proc. The seals are
        set once and for all, or a holder could forbid the next ones.
        """
        if not self._sealed:
            fcntl.fcntl(self.descriptor, _F_ADD_SEALS, _SEAL_FUTURE_WRITE | _SEAL_SEAL)
            self._sealed = True
        return os.open(f"/proc/self/fd/{self.descriptor}", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Gives the memory back once nobody else maps it. Safe to call twice, as after an interruption of the first."""
        descriptor, self.descriptor = self.descriptor, -1  # or who is late would open whatever gets its number next
        if descriptor >= 0:
            os.close(descriptor)
        # A tensor that still looks at it keeps the mapping; its end frees it.
        with contextlib.suppress(BufferError):
            self.memory.close()


def map_private(descriptor: int, size: int) -> mmap.mmap:
    """The other side's memory, with writes kept to this process."""
    return mmap.mmap(descriptor, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)


def map_read_only(descriptor: int, size: int) -> mmap.mmap:
    """The other side's memory, to be read."""
    return mmap.mmap(descriptor, size, prot=mmap.PROT_READ)


def map_shared(descriptor: int, size: int) -> mmap.mmap:
    """The other side's memory, writes included."""
    return mmap.mmap(descriptor, size)
