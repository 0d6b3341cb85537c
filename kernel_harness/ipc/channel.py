"""Transport between two processes: JSON objects and file descriptors over a socket pair.

The judge does not trust a worker, so the receiving process checks the length of each message, its JSON and the number
of its descriptors. The modules `messages` and `schema` define and check the fields of the JSON objects.
"""

from __future__ import annotations

import json
import math
import os
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

from kernel_harness.core.codec import Malformed

# Large enough for a message with a candidate's file and the sources that the file builds, both escaped as JSON.
MAX_MESSAGE_BYTES = 8 << 20
MAX_DESCRIPTORS = 128  # Linux allows 253
_LENGTH = struct.Struct("<I")


class Closed(Exception):
    """The error raised if the other process has closed its end of the channel."""


class Channel:
    """One end of a socket pair that carries messages.

    A message is a JSON object of at most MAX_MESSAGE_BYTES bytes. At most MAX_DESCRIPTORS file descriptors come with a
    message.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        # The part of the next message that has arrived, and the descriptors that came with it.
        self._arrived = bytearray()
        self._descriptors: list[int] = []

    def fileno(self) -> int:
        """Returns the socket's file descriptor, so that `select` accepts a Channel."""
        return self._socket.fileno()

    def close(self) -> None:
        """Closes this end of the channel, and discards a message that has arrived in part.

        The process at the other end then reads an end of file.
        """
        self._socket.close()
        self._discard()

    def send(self, message: dict[str, Any], descriptors: Sequence[int] = (), timeout_s: float | None = None) -> None:
        """Sends the JSON object `message`, and copies of the file descriptors in `descriptors` with it.

        Raises Closed if one of the ends is closed, TimeoutError after `timeout_s` seconds (None: no limit), and
        ValueError if the message is longer than MAX_MESSAGE_BYTES or contains a number that is not finite. After a
        TimeoutError the channel is unusable, because a part of the message may have been sent.
        """
        body = json.dumps(message, allow_nan=False).encode()
        if len(body) > MAX_MESSAGE_BYTES:
            raise ValueError(f"a message of {len(body)} bytes; the limit is {MAX_MESSAGE_BYTES}")
        data = _LENGTH.pack(len(body)) + body
        try:
            self._socket.settimeout(timeout_s)
            sent = socket.send_fds(self._socket, [data], list(descriptors)) if descriptors else 0
            self._socket.sendall(data[sent:])
        except TimeoutError:
            raise
        except OSError as error:
            raise Closed(str(error)) from None

    def receive(self, timeout_s: float | None = None) -> tuple[dict[str, Any], list[int]]:
        """Returns the next message and the file descriptors that come with it, which the caller must close.

        Raises Malformed if the data is too long or not a JSON object, or comes with too many descriptors; Closed if the
        other end is closed; and TimeoutError if the message is not complete after `timeout_s` seconds (None: no limit).
        After a TimeoutError, the next call goes on with the part of the message that has arrived.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            self._await_bytes(_LENGTH.size, deadline)
            (length,) = _LENGTH.unpack_from(self._arrived)
            if length > MAX_MESSAGE_BYTES:
                raise Malformed(f"a message of {length} bytes; the limit is {MAX_MESSAGE_BYTES}")
            self._await_bytes(_LENGTH.size + length, deadline)
            message = _parse(bytes(self._arrived[_LENGTH.size :]))
        except TimeoutError:
            raise
        except BaseException:
            self._discard()
            raise
        descriptors, self._descriptors = self._descriptors, []
        self._arrived.clear()
        return message, descriptors

    def _await_bytes(self, count: int, deadline: float | None) -> None:
        """Waits until the first `count` bytes of the next message have arrived, and reads no byte beyond them.

        Keeps the descriptors that come with them. Raises TimeoutError at `deadline` (in the time of `time.monotonic`;
        None: no limit), Closed if the other end is closed, and Malformed for more than MAX_DESCRIPTORS descriptors.
        """
        while len(self._arrived) < count:
            wait = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._socket], [], [], wait)[0]:
                raise TimeoutError
            try:
                data, fds, flags, _ = socket.recv_fds(self._socket, count - len(self._arrived), MAX_DESCRIPTORS)
            except OSError as error:
                raise Closed(str(error)) from None
            self._descriptors += fds
            for descriptor in fds:
                os.set_inheritable(descriptor, False)  # recv_fds ignores its flags, so MSG_CMSG_CLOEXEC has no effect
            if len(self._descriptors) > MAX_DESCRIPTORS or flags & socket.MSG_CTRUNC:
                raise Malformed(f"a message with more than {MAX_DESCRIPTORS} descriptors")
            if not data:
                raise Closed("end of file")
            self._arrived += data

    def _discard(self) -> None:
        """Forgets the part of a message that has arrived, and closes the descriptors that came with it."""
        self._arrived.clear()
        while self._descriptors:
            os.close(self._descriptors.pop())


def _parse(body: bytes) -> dict[str, Any]:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    def finite(digits: str) -> float:
        number = float(digits)
        if not math.isfinite(number):
            raise ValueError(f"{digits[:20]} is too large")
        return number

    try:
        message = json.loads(body, parse_constant=refuse, parse_float=finite)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"not JSON: {error}") from None
    if not isinstance(message, dict):
        raise Malformed("a JSON value that is not an object")
    return message


def pair() -> tuple[socket.socket, socket.socket]:
    """Returns two Unix stream sockets that are connected to each other."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
