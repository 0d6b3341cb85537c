"""Lets the lanes of a warp take some steps together, as a GPU does without `__syncwarp`.

These are the steps of a sum in volatile memory, and the read of an element of shared memory that is overwritten next.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cuda_on_cpu.compile.cuda_source import (
    Edit,
    Function,
    Kind,
    Token,
    closing_of,
    declared_variables,
    functions,
    in_directive,
    joined,
    next_code,
    places_of,
    previous_code,
    statement_start,
    text_at,
)

_ENDS_OF_DECLARATOR = ("[", ",", ")", "=", ";")
_BEFORE_STATEMENT = (";", "{", "}", ")", "else")
_COMPOUND = ("+", "-", "*", "&", "|", "^")
_ELEMENT = re.compile(r"^(?!(?:do|else) )(?:[\w:]+ )*\w+ = \w+ \[ \d+ \](?: \S+)*$")
_ON_DEVICE = ("__global__", "__device__")


def steps(tokens: Sequence[Token]) -> Iterator[Edit]:
    """Yields the edits of a CUDA source: of reads of one element (`_reads`), and of updates of volatile memory.

    An update is `v[i] += v[i + 16];`, or any other assignment to an element whose right side reads an element.
    In `{ step(1); auto value = (v[i + 16]); step(2); v[i] += value; step(3); }`, a step waits for the other lanes that
    are there. Statements in macros stay, and those of functions that the host may call.
    """
    for function in functions(tokens):
        if "__host__" in function.head or not set(function.head) & set(_ON_DEVICE):
            continue
        for end in _reads(tokens, function):
            yield end + 1, end + 1, f" ::emulator::step({3 * end});"
        names = set(_volatile_names(tokens, function))
        for start, operator, end in _updates(tokens, function, names):
            before, between, after = (f"::emulator::step({3 * start + i});" for i in (1, 2, 3))
            yield start, operator + 1, f"{{ {before} const auto emulator_value = ("
            left = joined(tokens[start : operator + 1])
            yield end, end + 1, f"); {between} {left} emulator_value; {after} }}"


def _volatile_names(tokens: Sequence[Token], function: Function) -> Iterator[str]:
    """Yields the names of the pointers to `volatile` and arrays of it that the function and its parameters declare."""
    for at in places_of(tokens, "volatile", start=function.start, end=function.closing):
        i, is_memory = next_code(tokens, at + 1), False
        while tokens[i : i + 1] and (tokens[i].kind is Kind.WORD or tokens[i].text in ("*", "::", "<", ">")):
            following = text_at(tokens, next_code(tokens, i + 1))
            is_memory |= tokens[i].text == "*" or following == "["
            if tokens[i].kind is Kind.WORD and following in _ENDS_OF_DECLARATOR:
                if is_memory:
                    yield tokens[i].text
                break
            i = next_code(tokens, i + 1)


def _reads(tokens: Sequence[Token], function: Function) -> Iterator[int]:
    """Yields the index of the `;` of each `value = memory[0];` behind which memory is written.

    The memory is a `__shared__` array of the function, and no barrier is between read and write. A GPU's warp reads the
    element before one of its lanes overwrites it.
    """
    body = {"start": function.opening, "end": function.closing}
    declared = [name for at in places_of(tokens, "__shared__", **body) for name in declared_variables(tokens, at)]
    arrays = {tokens[i].text for i in declared if text_at(tokens, next_code(tokens, i + 1)) == "["}
    for at in places_of(tokens, *arrays, **body) if arrays else ():
        if in_directive(tokens, at):
            continue
        start, end = statement_start(tokens, at), at
        while tokens[end].text not in (";", "{", "}"):
            end += 1
        words = " ".join(token.text for token in tokens[start:end] if token.text.strip())
        name = tokens[at].text
        if tokens[end].text == ";" and _ELEMENT.search(words) and _is_overwritten(tokens, end, function, name):
            yield end


def _is_overwritten(tokens: Sequence[Token], after: int, function: Function, name: str) -> bool:
    """Returns whether an element of the memory is written behind the token at `after`, and before a barrier."""
    for i in range(after, function.closing):
        if tokens[i].text == "__syncthreads":
            return False
        bracket = next_code(tokens, i + 1)
        if tokens[i].text == name and text_at(tokens, bracket) == "[":
            closing = closing_of(tokens, bracket)
            operator = next_code(tokens, closing + 1) if closing is not None else i
            if text_at(tokens, operator) == "=" and text_at(tokens, operator + 1) != "=":
                return True
    return False


def _updates(tokens: Sequence[Token], function: Function, names: set[str]) -> Iterator[tuple[int, int, int]]:
    """Yields the indices of the first token, of the `=` and of the `;` of each statement that `steps` edits."""
    for start in places_of(tokens, *names, start=function.opening, end=function.closing) if names else ():
        bracket = next_code(tokens, start + 1)
        begins = text_at(tokens, previous_code(tokens, start)) in _BEFORE_STATEMENT
        closing = closing_of(tokens, bracket) if text_at(tokens, bracket) == "[" else None
        if in_directive(tokens, start) or not begins or closing is None:
            continue
        operator = next_code(tokens, closing + 1)
        if text_at(tokens, operator) in _COMPOUND:  # two tokens, such as `+` and `=`
            operator += 1
        if text_at(tokens, operator) != "=" or text_at(tokens, operator + 1) == "=":
            continue
        end = operator
        while end < function.closing and tokens[end].text != ";":
            end += 1
        reads = [i for i in range(operator, end) if tokens[i].text in names]
        if any(text_at(tokens, next_code(tokens, i + 1)) == "[" for i in reads):
            yield start, operator, end
