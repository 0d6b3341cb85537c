"""The base class of all messages, and the limits that a message's fields can have.

The types of a message's fields define how the message is written as JSON and how received JSON is checked. Every type
and limit is checked, because a candidate may have sent the JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any, Self

from kernel_harness.core import codec
from kernel_harness.core.codec import Malformed, Reader


@dataclass(frozen=True)
class AtMost:
    """A limit of a field: a text or list of more than `length` characters or items is malformed."""

    length: int

    def around(self, read: Reader) -> Reader:
        """Returns a function that raises Malformed if the value is too long, and otherwise parses it with `read`."""

        def limited(value: Any) -> Any:
            if isinstance(value, str | list) and len(value) > self.length:
                raise Malformed(f"length {len(value)}; the limit is {self.length}")
            return read(value)

        return limited


@dataclass(frozen=True)
class JsonAtMost:
    """A limit of a field: a value whose JSON text is longer than `length` characters is malformed."""

    length: int

    def around(self, read: Reader) -> Reader:
        """Returns a function that raises Malformed if the value is too long, and otherwise parses it with `read`."""

        def limited(value: Any) -> Any:
            if len(json.dumps(value)) > self.length:
                raise Malformed(f"more than {self.length >> 10} KiB of JSON")
            return read(value)

        return limited


@dataclass(frozen=True)
class Cut:
    """A limit of a field: a text or list longer than `length` is cut to `length` characters or items.

    Such a value is not malformed, because an honest worker may send more than the judge wants to keep.
    """

    length: int

    def around(self, read: Reader) -> Reader:
        """Returns a function that cuts a text or list to `length`, and then parses it with `read`."""
        return lambda value: read(value[: self.length] if isinstance(value, str | list) else value)


@dataclass(frozen=True)
class Plausible:
    """A limit of a field: a number below `low` or above `high`, or a value that is no such number, is read as None."""

    low: float
    high: float

    def around(self, read: Reader) -> Reader:
        """Returns a function that parses a value with `read`. It returns None for a value that is not plausible."""

        def limited(value: Any) -> Any:
            try:
                number = read(value)
            except Malformed:
                return None
            return number if number is not None and self.low <= number <= self.high else None

        return limited


@dataclass(frozen=True)
class Message:
    """The base class of the messages that two processes exchange, and of the objects inside these messages.

    A field may be a bool, int, float or text, a member of a StrEnum, another message, a tensors.Leaf, a tuple of one of
    these, a dict from text to text, or None. A field of type Any may be any JSON value, whose content is not checked.
    """

    def to_json(self) -> dict[str, Any]:
        """Returns a dict from the names of the message's fields to their values as JSON."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Parses what `to_json` returns. `data` may be any JSON value.

        Raises Malformed if a field is missing, does not belong to this message, has another type or exceeds its limit.
        """
        try:
            return codec.reader(cls, strict=True)(data)  # type: ignore[arg-type, no-any-return]
        except RecursionError as error:
            raise Malformed(f"{cls.__name__}: {error}") from None


def _plain(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
