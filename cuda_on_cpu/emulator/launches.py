"""Rewrites launch syntax to C++: `kernel<<<configuration>>>(arguments)` becomes a call of `emulator::Configuration`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cuda_on_cpu.compile.cuda_source import (
    CLOSING,
    OPENING,
    Edit,
    Kind,
    Token,
    arguments_in,
    brackets_around,
    closing_of,
    in_directive,
    line_breaks,
    line_of,
    next_code,
    on_one_line,
    places_of,
    previous_code,
    start_of_body,
    text_at,
)

_ZERO = re.compile(r"NULL|0(?:[uU]?[lL]{0,2}|[lL]{1,2}[uU])")
_BEFORE_STATEMENT = ("return", "else", "do")  # `return ::kernel<<<...>>>(...)`: not a part of the kernel's name
_BEFORE_CONDITION = ("if", "constexpr", "for", "while", "switch")  # `if (c) (*kernel)<<<...>>>(...)`: no call of `(c)`


class MalformedLaunch(ValueError):
    """The error raised if a kernel launch has an unmatched bracket, or no `(...)` for its arguments.

    `line` is the line of the source, counted from 1, where the launch or the bracket is. `problem` describes the error.
    """

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"line {line}: {problem}")
        self.line = line
        self.problem = problem


def joined_launches(tokens: Sequence[Token]) -> Iterator[Edit]:
    """Yields the edits that join each `<< <`, which some formatters make of `<<<`, as nvcc does."""
    for at in places_of(tokens, "<"):
        last = next_code(tokens, at + 2)
        if text_at(tokens, at + 1) == text_at(tokens, last) == "<":
            yield at, last + 1, "<<<" + line_breaks(tokens[at:last])


def launches(tokens: Sequence[Token], kernels: set[str]) -> Iterator[Edit]:
    """Yields the edits with which each kernel launch becomes a call of `emulator::Configuration`.

    A launch is `kernel<<<configuration>>>(arguments)`, where `>> >` stands for `>>>`, too. The call gets the same
    configuration and arguments, and all tokens keep their line. `kernels` has the names of the kernels that the source
    declares. Raises MalformedLaunch for a launch with an unmatched bracket, or without `(...)` for its arguments.
    """
    sets_attributes = any("cudaFuncSetAttribute" in token.text for token in tokens if token.kind is Kind.WORD)
    for at in places_of(tokens, "<<<"):
        start = _kernel_start(tokens, at)
        if start is None:
            continue
        close, opening, end = _launch_parts(tokens, at)
        kernel = tokens[start:at]
        called = on_one_line(kernel)
        name = _name(called, in_macro=in_directive(tokens, at))
        selected = _selects(tokens, start, at)
        if selected or (sets_attributes and sum(token.is_code for token in kernel) == 1 and called not in kernels):
            name = f'"(" {name} ")"'  # brackets mark a variable, which may hold any kernel
        # A kernel that an expression selects is selected once, not by each thread.
        captured = f"=, emulator_kernel = {called}" if selected else "="
        parameters, passed, initializers = _passed(tokens, opening + 1, end)
        call = f"{'emulator_kernel' if selected else called}({passed});"
        between = f")({line_breaks(tokens[close:opening])}{name}, [{captured}]({parameters}) {{ {call} }}"
        comma = ", " if next_code(tokens, opening + 1) < end else ""
        yield start, at + 1, f"::emulator::Configuration({line_breaks(kernel)}"
        yield close, opening + 1, between + comma
        yield from initializers


def _name(called: str, *, in_macro: bool) -> str:
    """Returns a C++ expression for the name of a kernel as text. In a macro, the preprocessor first pastes the name."""
    if in_macro:
        return f"EMULATOR_TEXT({called})"
    return '"' + called.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _passed(tokens: Sequence[Token], start: int, end: int) -> tuple[str, str, list[Edit]]:
    """Returns (parameters, passed, edits) for `[=](parameters) { kernel(passed); }`, the lambda that each thread calls.

    `parameters` and `passed` are C++ text. The launch's arguments begin at the index `start` and end before `end`; with
    the edits, they are the lambda's. The kernel gets the lambda's parameters, which are copies for each thread. But the
    null pointers `NULL` and `0` and an initializer `{...}` convert to the type of the kernel's parameter only if they
    are written in the kernel's call. So `passed` repeats their text. The edits replace an initializer by `nullptr`,
    because C++ cannot deduce the type of the lambda's parameter from an initializer.
    """
    parts = list(arguments_in(tokens, start, end))
    texts = [on_one_line(tokens[first:last]) for first, last in parts]
    again = [bool(_ZERO.fullmatch(text)) or text.startswith("{") for text in texts]
    if not any(again) or any(text.endswith("...") for text in texts):
        return "auto... emulator_arguments", "emulator_arguments...", []
    names = [f"emulator_{i}" for i in range(len(parts))]
    parameters = ", ".join("auto" if own else f"auto {name}" for own, name in zip(again, names, strict=True))
    passed = ", ".join(text if own else name for own, text, name in zip(again, texts, names, strict=True))
    initializers = [part for part, text in zip(parts, texts, strict=True) if text.startswith("{")]
    edits = [(first, last, f" nullptr{line_breaks(tokens[first:last])}") for first, last in initializers]
    return parameters, passed, edits


def _launch_parts(tokens: Sequence[Token], at: int) -> tuple[int, int, int]:
    """Returns the indices of three tokens in the kernel launch whose `<<<` is the token at index `at`.

    The three tokens are the first `>` of the launch's `>>>`, and the opening and the closing bracket around the
    launch's arguments. Raises MalformedLaunch if a bracket has no partner, or if no `(` follows the `>>>`.
    """
    depth, close, opening = 0, None, 0
    for i in range(at + 1, len(tokens)):
        text = tokens[i].text
        if text == text_at(tokens, i + 1) == ">" and not depth:
            last = next_code(tokens, i + 2)
            if text_at(tokens, last) == ">":
                close, opening = i, next_code(tokens, last + 1)
                break
        depth += (text in OPENING) - (text in CLOSING)
        if depth < 0 or (text in (";", "<<<") and not depth):
            break
    if close is None:
        raise MalformedLaunch(line_of(tokens, at), "the '<<<' of this launch has no matching '>>>'")
    if text_at(tokens, opening) != "(":
        raise MalformedLaunch(line_of(tokens, at), "a launch needs its arguments in '(...)' after '>>>'")
    end = closing_of(tokens, opening)
    if end is None:
        raise MalformedLaunch(line_of(tokens, opening), "the '(' of this launch's arguments has no matching ')'")
    return close, opening, end


def _kernel_start(tokens: Sequence[Token], at: int) -> int | None:
    """Returns the index of the first token of the kernel expression that ends before the `<<<` at index `at`.

    The expression is a name or in brackets, or it selects a kernel: `table[i]`, `config->kernel`, `select(n)`. Returns
    None if the token before the `<<<` is no name and no bracket. Raises MalformedLaunch if a bracket has no partner.
    """
    i, first = at, start_of_body(tokens, at)
    while True:
        i = previous_code(tokens, i)
        text = text_at(tokens, i)
        if text == ">":
            i = _angle_opening(tokens, i)
            continue
        if text in (")", "]"):
            i = _opening(tokens, i)
            if previous_code(tokens, i) < first or not _is_behind_operand(tokens, i):
                return i
            continue
        if i < 0 or tokens[i].kind not in (Kind.WORD, Kind.NUMBER):
            return None
        before = previous_code(tokens, i)
        if text_at(tokens, before) == text_at(tokens, before - 1) == "#":  # a name that a macro pastes: `a##type##b`
            i = before - 1
            continue
        if text_at(tokens, before) in (".", "->"):
            i = before
            continue
        if text_at(tokens, before) != "::":
            return i
        qualifier = previous_code(tokens, before)
        word = text_at(tokens, qualifier)
        if word != ">" and (qualifier < first or tokens[qualifier].kind is not Kind.WORD or word in _BEFORE_STATEMENT):
            return before
        i = before


def _is_behind_operand(tokens: Sequence[Token], opening: int) -> bool:
    """Returns whether the bracket at index `opening` calls or indexes the expression before it: `f(n)`, `a[i]`."""
    before = previous_code(tokens, opening)
    text = text_at(tokens, before)
    if text == ")":
        outer = _opening(tokens, before)
        is_cast = [token.text for token in tokens[outer + 1 : before] if token.is_code] == ["void"]
        return not is_cast and text_at(tokens, previous_code(tokens, outer)) not in _BEFORE_CONDITION
    return text in ("]", ">") or (tokens[before].kind is Kind.WORD and text not in _BEFORE_STATEMENT)


def _selects(tokens: Sequence[Token], start: int, at: int) -> bool:
    """Returns whether the kernel expression from the index `start` to before `at` indexes, calls or names a member."""
    last = previous_code(tokens, at)
    if text_at(tokens, last) in (")", "]"):
        return _opening(tokens, last) != start
    return text_at(tokens, previous_code(tokens, last)) in (".", "->")


def _opening(tokens: Sequence[Token], at: int) -> int:
    opening = next(brackets_around(tokens, at), None)
    if opening is None:
        raise MalformedLaunch(line_of(tokens, at), f"this '{tokens[at].text}' has no matching opening bracket")
    return opening


def _angle_opening(tokens: Sequence[Token], at: int) -> int:
    """Returns the index of the `<` that matches the `>` at index `at` of `tokens`.

    Raises MalformedLaunch if no `<` matches, or if a `)` between both has no `(`.
    """
    depth, i = 0, at
    while i >= 0:
        text = tokens[i].text
        if text == ")":
            i = _opening(tokens, i)
        elif text == ">":
            depth += 1
        elif text == "<":
            depth -= 1
            if not depth:
                return i
        i -= 1
    raise MalformedLaunch(line_of(tokens, at), "this '>' has no matching '<'")
