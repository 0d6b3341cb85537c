"""How a message is sent: as the JSON object `{"kind": class name, "number": text, "body": fields}`, with descriptors.

The judge draws a new random number for each message to a worker, and the worker's reply repeats the number. Between
judge and fork server the number is an empty text.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kernel_harness.core.codec import Malformed
from kernel_harness.ipc.channel import Channel
from kernel_harness.ipc.schema import Message

M = TypeVar("M", bound=Message)


@dataclass(frozen=True)
class Received(Generic[M]):
    """A received message, the number of the request that it belongs to, and the file descriptors that came with it.

    The receiver must close the descriptors.
    """

    message: M
    number: str
    descriptors: list[int]

    def close(self) -> None:
        """Closes the descriptors that came with the message."""
        while self.descriptors:
            os.close(self.descriptors.pop())

    def taken(self) -> M:
        """Closes the descriptors that came with the message, and returns the message."""
        self.close()
        return self.message


def send(
    channel: Channel,
    message: Message,
    number: str = "",
    descriptors: Sequence[int] = (),
    timeout_s: float | None = None,
) -> None:
    """Sends `message`, the number of the request that it belongs to, and copies of the file descriptors `descriptors`.

    Raises channel.Closed if the other end is closed, TimeoutError after `timeout_s` seconds (None: no limit), and
    ValueError if the message is too long or contains a number that is not finite.
    """
    envelope = {"kind": type(message).__name__, "number": number, "body": message.to_json()}
    channel.send(envelope, descriptors, timeout_s)


def receive(
    channel: Channel, kinds: Sequence[type[M]], *, number: str | None = None, timeout_s: float | None = None
) -> Received[M]:
    """Returns the next message with its number and descriptors. The caller must close the descriptors.

    The message is an instance of one of `kinds`, and has the request number `number` (None: any number). Raises
    Malformed for any other message, channel.Closed if the other end is closed, and TimeoutError if the message is not
    complete after `timeout_s` seconds (None: no limit).
    """
    data, descriptors = channel.receive(timeout_s)
    try:
        return Received(_opened(data, kinds, number), data["number"], descriptors)
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise


def _opened(data: dict[str, Any], kinds: Sequence[type[M]], number: str | None) -> M:
    if data.keys() != {"kind", "number", "body"} or not isinstance(data["number"], str):
        raise Malformed("its fields are not `kind`, `number` and `body`, or `number` is not a string")
    if number is not None and data["number"] != number:
        raise Malformed("a reply to another request")
    for kind in kinds:
        if kind.__name__ == data["kind"]:
            return kind.from_json(data["body"])
    raise Malformed(f"not a message of the kind {' or '.join(kind.__name__ for kind in kinds)}")
