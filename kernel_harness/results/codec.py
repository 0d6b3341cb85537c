"""Converts parsed JSON values to frozen dataclasses, whose field types decide which JSON values are accepted."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

Decoder = Callable[[Any], Any]


class Undecodable(ValueError):
    """The error raised if a JSON value cannot be converted to the wanted type. It names the field of a dataclass."""


@cache
def decoder(kind: Any) -> Decoder:
    """Returns a function that converts a parsed JSON value to a value of the type `kind`.

    The returned function raises Undecodable if a JSON value cannot be converted to `kind`, or if a dataclass refuses
    its values with a ValueError.
    Supported types: dataclasses, enums, bool, int, float, str, Any, tuples of the form tuple[T, ...], mappings with
    string keys, and unions with None. For a float, JSON may hold a number or one of the texts "nan", "inf" and "-inf".
    JSON may omit a field of a dataclass if the field has a default. A JSON object must not have a key that is not a
    field of its dataclass. `decoder` raises TypeError for a tuple of another form.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: value
    if origin in (Union, types.UnionType):
        (other,) = (argument for argument in arguments if argument is not types.NoneType)
        return _optional(decoder(other))
    if origin is tuple:
        return _sequence(arguments)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(decoder(arguments[1]))
    if is_dataclass(kind):
        return _dataclass(kind)
    if issubclass(kind, Enum):
        return _enum(kind)
    return _number if kind is float else _plain(kind)


def _optional(decode: Decoder) -> Decoder:
    return lambda value: None if value is None else decode(value)


def _sequence(arguments: tuple[Any, ...]) -> Decoder:
    element, rest = arguments
    if rest is not Ellipsis:
        raise TypeError(f"a field of the type tuple{list(arguments)} cannot be read; the type must be tuple[T, ...]")
    decode_element, unchanged = decoder(element), _unchanged(element)

    def decode(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise Undecodable(f"not a list: {value!r:.60}")
        if unchanged.issuperset(map(type, value)):  # fast path for lists of thousands of samples
            return tuple(value)
        return tuple(map(decode_element, value))

    return decode


def _unchanged(kind: Any) -> set[type]:
    """Returns the Python types of parsed JSON values that already are values of `kind` and need no conversion.

    For example {int, NoneType} for `int | None`, and the empty set for a dataclass.
    """
    kinds = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return set(kinds) & {bool, int, float, str, types.NoneType}


def _mapping(decode_value: Decoder) -> Decoder:
    def decode(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Undecodable(f"not an object: {value!r:.60}")
        return {key: decode_value(each) for key, each in value.items()}

    return decode


def _dataclass(kind: Any) -> Decoder:
    hints = get_type_hints(kind)
    decoders = {field.name: decoder(hints[field.name]) for field in fields(kind)}
    required = {f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING}

    def decode(value: Any) -> Any:
        if not isinstance(value, dict):
            raise Undecodable(f"not an object: {value!r:.60}")
        if value.keys() - decoders.keys() or required - value.keys():
            wrong = sorted((value.keys() - decoders.keys()) | (required - value.keys()))
            raise Undecodable(f"{kind.__name__} has missing or unknown fields: {', '.join(wrong)}")
        found = {}
        for name, each in value.items():
            try:
                found[name] = decoders[name](each)
            except Undecodable as error:
                raise Undecodable(f"{name}: {error}") from None
        try:
            return kind(**found)
        except ValueError as error:
            raise Undecodable(str(error)) from None

    return decode


def _enum(kind: type[Enum]) -> Decoder:
    def decode(value: Any) -> Enum:
        try:
            return kind(value)
        except ValueError as error:
            raise Undecodable(str(error)) from None

    return decode


def _number(value: Any) -> float:
    if type(value) in (int, float) or value in ("nan", "inf", "-inf"):
        return float(value)
    raise Undecodable(f"not a number: {value!r:.60}")


def _plain(kind: type) -> Decoder:
    def decode(value: Any) -> Any:
        if type(value) is not kind:
            raise Undecodable(f"not of type {kind.__name__}: {value!r:.60}")
        return value

    return decode
