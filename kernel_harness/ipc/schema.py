"""The base class of all messages, and the limits that a message's fields can have.

The types of a message's fields define how the message is written as JSON and how received JSON is checked. Every type
and limit is checked, because a candidate may have sent the JSON.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, Self, Union, get_args, get_origin, get_type_hints

from kernel_harness.ipc.channel import Malformed
from kernel_harness.ipc.tensors import Unreadable

Reader = Callable[[Any], Any]
"""A function that checks one JSON value and returns the value of a field.

It raises Malformed, or tensors.Unreadable in the description of a tensor, if the JSON value is not valid.
"""


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
        readers = _readers(cls)  # type: ignore[arg-type]
        if not isinstance(data, dict) or data.keys() != readers.keys():
            raise Malformed(f"{cls.__name__}: missing or extra fields")
        values, name = {}, ""
        try:
            for name, read in readers.items():
                values[name] = read(data[name])
            name = "fields"
            return cls(**values)
        except (Malformed, Unreadable, RecursionError) as error:
            raise Malformed(f"{cls.__name__}.{name}: {error}") from None


def _plain(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


@functools.cache
def _readers(kind: type[Message]) -> dict[str, Reader]:
    """Returns, by name, a function for each field of the message class `kind` that checks and parses the field's JSON.

    The result is cached, because the judge parses messages while it times a call.
    """
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: _reader(hints[field.name]) for field in fields(kind)}


def _reader(hint: Any) -> Reader:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return arguments[1].around(_reader(arguments[0]))  # type: ignore[no-any-return]
    if origin in (UnionType, Union):
        return _optional(_reader(next(argument for argument in arguments if argument is not NoneType)))
    if origin is tuple:
        return functools.partial(_tuple, _reader(arguments[0]))
    if origin is dict:
        return _texts
    if hint is Any:
        return lambda value: value
    if hint in (bool, int, float, str):
        return functools.partial(_exactly, hint)
    if issubclass(hint, StrEnum):
        return functools.partial(_member, hint)
    return hint.from_json  # type: ignore[no-any-return]


def _optional(read: Reader) -> Reader:
    return lambda value: None if value is None else read(value)


def _exactly(kind: type[Any], value: Any) -> Any:
    """Returns `value`. Raises Malformed if its type is not exactly `kind` (a bool is no int) or if it is not finite."""
    if type(value) is not kind:
        raise Malformed(f"expected {kind.__name__}, got {type(value).__name__}")
    if isinstance(value, float) and not math.isfinite(value):
        raise Malformed(f"{value} is not finite")
    return value


def _tuple(read: Reader, value: Any) -> tuple[Any, ...]:
    return tuple(map(read, _exactly(list, value)))


def _texts(value: Any) -> dict[str, str]:
    return {_exactly(str, key): _exactly(str, item) for key, item in _exactly(dict, value).items()}


def _member(kind: type[StrEnum], value: Any) -> StrEnum:
    try:
        return kind(_exactly(str, value))
    except ValueError:
        raise Malformed(f"not a {kind.__name__}") from None
