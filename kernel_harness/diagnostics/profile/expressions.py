"""Finds the expression of a memory access in its line, by the column that g++ gives to the access."""

from __future__ import annotations

import re
from enum import StrEnum

_OBJECT = r"[\w:]+(?:(?:\.|->)\w+)*"
_OPENING, _CLOSING = "[(", "])"


class Kind(StrEnum):
    """What an instruction does to memory. An atomic operation both reads and writes.

    An asynchronous copy is a load of global memory and a copy to shared memory.
    """

    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"
    COPY = "copy"


def expression(text: str, column: int, kind: Kind) -> str | None:
    """Returns the subscript expression at a column of a line, such as `B[n * K + k]`, or None if it is not clear.

    `column` counts bytes from 1, and `kind` says what the access does. g++ gives a load the column of the last `]` of
    its expression (in a template that of the `[`), and a store that of its assignment operator. But if an assignment
    copies a structure, or a condition or a call reads the value, the load has the column of the `=`, the `?` or the
    `(`. Then the expression is clear only if exactly one subscript expression follows in the line.
    """
    head = text.encode()[:column].decode(errors="ignore")
    if head.endswith("["):
        closing = _match(text, len(head) - 1, step=1)
        return None if closing is None else _before(text[: closing + 1])
    if kind is Kind.LOAD and head.endswith(("=", "?", "(")):
        following = _subscripts(text[len(head) :])
        return following[0] if len(following) == 1 else None
    return _before(re.sub(r"\s*(?:<<?|>>?|[-+*/%&|^])?=?$", "", head))


def _before(head: str) -> str | None:
    """Returns the subscript expression at the end of `head`, or None if `head` ends otherwise."""
    start = len(head)
    while head[:start].rstrip().endswith(tuple(_CLOSING)):
        opening = _match(head, len(head[:start].rstrip()) - 1, step=-1)
        if opening is None:
            return None
        start = opening
    word = re.search(rf"{_OBJECT}(?:<[\w\s*:]+>)?\s*$", head[:start])
    return head[word.start() :] if head.endswith("]") and word else None


def _subscripts(text: str) -> list[str]:
    """Returns the subscript expressions in `text`, such as `B[n * K + k]`, in order.

    A subscript expression inside another one is not in the list: for `a[i[0]]`, the list has `a[i[0]]` only. Returns an
    empty list if a bracket of a subscript is not closed.
    """
    found, end = [], 0
    for match in re.finditer(rf"{_OBJECT}\s*(?=\[)", text):
        if match.start() < end:
            continue
        end = match.end()
        while text[end : end + 1] == "[":
            closing = _match(text, end, step=1)
            if closing is None:
                return []
            end = closing + 1
        found.append(text[match.start() : end])
    return found


def _match(text: str, start: int, *, step: int) -> int | None:
    """Returns the index of the bracket that matches the one at index `start`, or None if there is none.

    `step` is the direction to search: 1 or -1.
    """
    depth = 0
    for at in range(start, len(text) if step > 0 else -1, step):
        depth += (text[at] in _OPENING) - (text[at] in _CLOSING)
        if not depth:
            return at
    return None
