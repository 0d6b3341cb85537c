"""Marks the statements of a CUDA source that add 1 to an integer atomically and do not use the old value.

In shared memory, nvcc makes one instruction of them that adds the number of threads with the same address, so their
updates do not wait for each other. All other updates of one address do.
"""

from __future__ import annotations

from collections.abc import Sequence

from cuda_on_cpu.compile.cuda_source import (
    Edit,
    Token,
    brackets_after,
    brackets_around,
    in_directive,
    next_code,
    places_of,
    previous_code,
    text_at,
    tokenize,
)

_ONE = ("1", "1u", "1U")
_BEFORE_STATEMENT = (";", "{", "}", "else", "do", "")
_WITH_CONDITION = ("if", "for", "while")


def marks(source: str) -> list[Edit]:
    """Returns the edits of the source that add texts (`cuda_source.with_additions`).

    With them, such statements report that they count up (emulator/loops.h).
    """
    tokens = tokenize(source)
    places = [at for at in places_of(tokens, "atomicAdd", "atomicAdd_block") if _counts_up(tokens, at)]
    return [(at, at, "emulator_counts_up(), ") for at in places]


def _counts_up(tokens: Sequence[Token], at: int) -> bool:
    brackets = brackets_after(tokens, at)
    if not brackets or not _begins_statement(tokens, at) or in_directive(tokens, at):
        return False
    value = previous_code(tokens, brackets[1])
    adds_one = text_at(tokens, value) in _ONE and text_at(tokens, previous_code(tokens, value)) == ","
    return adds_one and text_at(tokens, next_code(tokens, brackets[1] + 1)) == ";"


def _begins_statement(tokens: Sequence[Token], at: int) -> bool:
    before = previous_code(tokens, at)
    if text_at(tokens, before) != ")":
        return text_at(tokens, before) in _BEFORE_STATEMENT
    opening = next(brackets_around(tokens, before), None)
    return opening is not None and text_at(tokens, previous_code(tokens, opening)) in _WITH_CONDITION
