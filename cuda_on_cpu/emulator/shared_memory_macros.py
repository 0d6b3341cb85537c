"""Expands macros that declare shared memory, or a part of its declaration, where a source uses them.

The rewriting then sees the declaration: `ARRAY(float, s);` with `#define ARRAY(T, name) extern __shared__ T name[]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cuda_on_cpu.compile.cuda_source import (
    Edit,
    Token,
    arguments_in,
    brackets_after,
    directive_end,
    in_directive,
    line_breaks,
    next_code,
    on_one_line,
    places_of,
    start_of_body,
    text_at,
)

_PASTE = re.compile(r"\s*##\s*")


class _Macro(NamedTuple):
    """A macro: its name, the names of its parameters, which are None if it has no list of them, and its tokens."""

    name: str
    parameters: list[str] | None
    body: Sequence[Token]


def expansions(tokens: Sequence[Token]) -> Iterator[Edit]:
    """Yields the edits that expand each use of a macro whose text has `__shared__`.

    Not expanded is a macro with braces, which may be a whole kernel, with variable arguments, or with two definitions.
    """
    macros = {macro.name: macro for macro in _macros(tokens)}
    for at in places_of(tokens, *macros):
        if in_directive(tokens, at) and not 0 < start_of_body(tokens, at) <= at:
            continue  # the name in its definition, or in a condition of the preprocessor
        macro, values, end = macros[tokens[at].text], dict[str, str](), at + 1
        if macro.parameters is not None:
            opening, closing = brackets_after(tokens, at) or (at, at)
            arguments = [on_one_line(tokens[start:last]) for start, last in arguments_in(tokens, opening + 1, closing)]
            if len(arguments) != len(macro.parameters):
                continue
            values, end = dict(zip(macro.parameters, arguments, strict=True)), closing + 1
        text = on_one_line(token._replace(text=values.get(token.text, token.text)) for token in macro.body)
        yield at, end, _PASTE.sub("", text) + line_breaks(tokens[at:end])


def _macros(tokens: Sequence[Token]) -> Iterator[_Macro]:
    """Yields the macros that `expansions` expands."""
    defined = [i for i in places_of(tokens, "define") if in_directive(tokens, i)]
    names = [text_at(tokens, next_code(tokens, i + 1)) for i in defined]
    for define, name in zip(defined, names, strict=True):
        at, start = next_code(tokens, define + 1), start_of_body(tokens, define)
        body = tokens[start : directive_end(tokens, define)]
        words = {token.text for token in body}
        if "__shared__" not in words or words & {"{", "}"} or names.count(name) > 1:
            continue
        listed = [token.text for token in tokens[at + 1 : start] if token.is_code]
        if "." not in listed:
            yield _Macro(name, listed[1:-1:2] if listed else None, body)
