"""Marks the loops of a CUDA source that nvcc unrolls by four although it does not know how many steps they have.

Its code does four steps at a time in one loop, and those that remain in another one, before or behind it. So threads
with different numbers of steps are at different instructions. The rules below were read off the SASS that nvcc 13.0
makes of 56 small loops.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise, takewhile

from cuda_on_cpu.compile.cuda_source import (
    Edit,
    Function,
    Token,
    brackets_after,
    brackets_around,
    closing_of,
    code_only,
    functions,
    in_directive,
    places_of,
    plain,
    previous_code,
    statement_start,
    text_at,
    tokenize,
)

_DEVICE, _CONSTEXPR = re.compile(r"\b__(?:global|device)__\b"), re.compile(r"\bconst(?:eval|expr)\b(?!\s*\()")
_TEST = re.compile(r"\s*(\w+)\s*(?:<=?|>=?|!=)([^<>=!&|?,]+)")
_STEP = re.compile(r"\s*(?:\+\+\s*\w+|--\s*\w+|\w+\s*\+\+|\w+\s*--|\w+\s*[-+]=([^,?]+))")
_NAME = re.compile(r"[A-Za-z_]\w*")
# Declarations of names whose value nvcc knows, such as `constexpr int A = 1, B = 2` and `template <int A, int B>`.
_CONSTANTS = re.compile(r"\b(?:constexpr|template\s*<)([^;{}<>()]*)")
_CONSTANT = re.compile(r"(\w+)\s*(?:=[^,]*)?(?:,|$)")
_KNOWN = re.compile(r"\b(?:const\s+\w+|\w+\s+const)\s+(\w+)\s*=\s*(?:\d|sizeof)|#\s*define\s+(\w+)")
# nvcc does not unroll a loop around another one, one with a second exit, or one that works on a whole warp or calls
# large functions. Beyond so many operations, it unrolls by two or not at all: chains of 20 FMAs and of 24.
_NOT_UNROLLED = re.compile(
    r"\b(?:for|while|do|break|return|goto|asm|__asm__|\w*(?:sync|shfl|ballot|activemask)\w*|"
    r"(?:sin|cos|tan|sincos|pow|erf|lgamma|tgamma)[fp]?i?f?)\b"
)
_OPERATION = re.compile(r"[-+*/%&|^?<>=]+")
_MOST_OPERATIONS = 40
# The remaining steps come last if an integer that changes in the loop has a constant value before it.
_INTEGER = (
    r"\b(?:int|unsigned|long|short|char|bool|(?:u?int\d+|size)_t)\b[^;(){{}}]*"
    r"\b{name}\s*=\s*(?:-?\d\w*|true|false)\s*[;,]"
)
_CHANGED = re.compile(r"(?<![\].\w])(\w+)\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)|(?:\+\+|--)\s*(\w+)|(\w+)\s*(?:\+\+|--)")
_STORE = re.compile(r"\]\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)|\batomic")


def marks(source: str) -> list[Edit]:
    """Returns the edits of the source that add texts (`cuda_source.with_additions`).

    With them, such loops report their begin, each step and their end (emulator/loops.h).
    """
    tokens, code = tokenize(source), code_only(source)
    known = {name for names in _KNOWN.findall(code) for name in names if name}
    known |= {name for names in _CONSTANTS.findall(code) for name in _CONSTANT.findall(names)}
    return [edit for function in functions(tokens) for edit in _marks_in(tokens, function, known)]


def _marks_in(tokens: Sequence[Token], function: Function, known: set[str]) -> Iterator[Edit]:
    for at in places_of(tokens, "for", start=function.opening, end=function.closing):
        opening, end = brackets_after(tokens, at) or (at, at)
        ends = places_of(tokens, ";", start=opening, end=end)
        if len(ends) != 2 or not _is_in_device_code(tokens, function, at):
            continue
        begin, *head = (plain(tokens[i + 1 : j]) for i, j in pairwise([opening, *ends, end]))
        test, step = _TEST.fullmatch(head[0]), _STEP.fullmatch(head[1])
        body = _body(tokens, end + 1)
        if test and step and test[1] in step[0] and _is_unrolled(test[2], step[1] or "", body, known):
            last = _comes_last(test[1], begin, plain(tokens[function.start : at]), body)
            yield at, at, f"EMULATOR_UNROLLED({str(last).lower()}) "
            yield ends[1], ends[1], f" && ::emulator::begins_step(emulator_loop, {test[1]})"


def _is_unrolled(bound: str, step: str, body: str, known: set[str]) -> bool:
    steps, bounds = (set(_NAME.findall(text)) for text in (step, bound))
    return (
        steps <= known
        and not bounds <= known
        and not ("[" in bound and _STORE.search(body))  # the store may change the bound
        and not _NOT_UNROLLED.search(body)
        and len(_OPERATION.findall(body)) <= _MOST_OPERATIONS
    )


def _comes_last(counter: str, begin: str, before: str, body: str) -> bool:
    """Returns whether nvcc's code runs the steps that remain after groups of four behind these groups, not before them.

    `counter` is the name of the loop's variable, `begin` the first statement of the loop's head, `before` the code
    of the function before the loop and `body` the body of the loop. The result is true if `begin` declares `counter`
    with a constant value, or if `before` declares an integer with a constant value and `body` changes it.
    """
    changed = {name for names in _CHANGED.findall(body) for name in names if name}
    texts = [(counter, f"{begin};"), *((name, before) for name in changed)]
    return any(re.search(_INTEGER.format(name=name), text) for name, text in texts)


def _is_in_device_code(tokens: Sequence[Token], function: Function, at: int) -> bool:
    """Returns whether a loop is in a function for the GPU, but not in a macro or its arguments, and has no pragma.

    A constexpr function does not count, because the compiler may run it.
    """
    opened = list(takewhile(lambda i: i > function.opening, brackets_around(tokens, at)))
    heads = " ".join([*function.head, *(plain(tokens[statement_start(tokens, i) : i]) for i in opened)])
    in_function = _DEVICE.search(heads) and not _CONSTEXPR.search(heads)
    directive = in_directive(tokens, at) or in_directive(tokens, previous_code(tokens, at))
    return bool(in_function) and not directive and all(tokens[i].text == "{" for i in opened)


def _body(tokens: Sequence[Token], start: int) -> str:
    """Returns the statement that begins at index `start`, without the `else` behind a block."""
    end = next((i for i in range(start, len(tokens)) if tokens[i].text in (";", "{")), start)
    return plain(tokens[start : closing_of(tokens, end) if text_at(tokens, end) == "{" else end])
