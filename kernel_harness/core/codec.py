"""Converts parsed JSON to frozen dataclasses: messages of other processes, and results in files.

The types of the fields decide which JSON values are accepted.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

Reader = Callable[[Any], Any]
"""A function that checks one JSON value and returns the value of a field. It raises Malformed."""


class Malformed(ValueError):
    """The error raised if a JSON value or a message is not what was expected. It names the field of a dataclass."""


@cache
def reader(kind: Any, *, strict: bool = False) -> Reader:
    """Returns a function that converts a parsed JSON value to a value of the type `kind`.

    The returned function raises Malformed if a JSON value cannot be converted to `kind`, or if a dataclass refuses its
    values with a ValueError. Supported types: dataclasses, enums, bool, int, float, str, Any, tuples of the form
    tuple[T, ...], mappings with string keys, unions with None, and Annotated[T, limit] with a limit that has the method
    `around`, which gets the reader of T and returns another. A class that defines `from_json` itself is read by that.
    A JSON object must not have a key that is not a field of its dataclass.

    `strict` is for JSON that a candidate may have written: no field may be missing, and a float must be a finite JSON
    number that is not an integer's. Otherwise a field that has a default may be missing, and for a float JSON may hold
    any number or one of the texts "nan", "inf" and "-inf".

    The result is cached, because the judge reads messages while it times a call. `reader` itself raises TypeError for a
    tuple of another form.
    """
    origin, arguments, within = get_origin(kind), get_args(kind), partial(reader, strict=strict)
    if origin is Annotated:
        return arguments[1].around(within(arguments[0]))  # type: ignore[no-any-return]
    if kind is Any:
        return lambda value: value
    if origin in (Union, types.UnionType):
        (other,) = (within(argument) for argument in arguments if argument is not types.NoneType)
        return lambda value: None if value is None else other(value)
    if origin is tuple:
        return _sequence(arguments, strict)
    if origin is not None and issubclass(origin, Mapping):
        read = within(arguments[1])
        return lambda value: {exactly(str, key): read(each) for key, each in exactly(dict, value).items()}
    if "from_json" in vars(kind):
        return kind.from_json  # type: ignore[no-any-return]
    if is_dataclass(kind):
        return _dataclass(kind, strict)
    if issubclass(kind, Enum):
        return partial(_member, kind)
    return _number if kind is float and not strict else partial(exactly, kind)


def exactly(kind: type, value: Any) -> Any:
    """Returns `value`. Raises Malformed if its type is not exactly `kind` (a bool is no int) or if it is not finite."""
    if type(value) is not kind:
        raise Malformed(f"not of type {kind.__name__}: {value!r:.60}")
    if isinstance(value, float) and not math.isfinite(value):
        raise Malformed(f"{value} is not finite")
    return value


def _sequence(arguments: tuple[Any, ...], strict: bool) -> Reader:
    element, rest = arguments
    if rest is not Ellipsis:
        raise TypeError(f"a field of the type tuple{list(arguments)} cannot be read; the type must be tuple[T, ...]")
    read_element, unchanged = reader(element, strict=strict), _unchanged(element, strict)

    def read(value: Any) -> tuple[Any, ...]:
        exactly(list, value)
        if unchanged.issuperset(map(type, value)):  # fast path for lists of thousands of samples
            return tuple(value)
        return tuple(map(read_element, value))

    return read


def _unchanged(kind: Any, strict: bool) -> set[type]:
    """Returns the Python types of parsed JSON values that already are values of `kind` and need no conversion.

    For example {int, NoneType} for `int | None`, and the empty set for a dataclass.
    """
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return set(kinds) & ({bool, int, str, types.NoneType} | (set() if strict else {float}))


def _dataclass(kind: Any, strict: bool) -> Reader:
    hints = get_type_hints(kind, include_extras=True)
    readers = {field.name: reader(hints[field.name], strict=strict) for field in fields(kind)}
    omitted = {f.name for f in fields(kind) if f.default is not MISSING or f.default_factory is not MISSING}
    required = readers.keys() - (set() if strict else omitted)

    def read(value: Any) -> Any:
        exactly(dict, value)
        if wrong := sorted((value.keys() - readers.keys()) | (required - value.keys())):
            raise Malformed(f"{kind.__name__} has missing or unknown fields: {', '.join(wrong)}"[:200])
        found, name = {}, "fields"
        try:
            for name, each in value.items():
                found[name] = readers[name](each)
            name = "fields"
            return kind(**found)
        except ValueError as error:
            raise Malformed(f"{kind.__name__}.{name}: {error}") from None

    return read


def _member(kind: type[Enum], value: Any) -> Enum:
    try:
        return kind(value)
    except ValueError as error:
        raise Malformed(str(error)[:200]) from None


def _number(value: Any) -> float:
    if type(value) in (int, float) or value in ("nan", "inf", "-inf"):
        return float(value)
    raise Malformed(f"not a number: {value!r:.60}")
