"""A failed build as its author reads it: the first error at their own line, a caret under it, what to do last.

Reads no log: `digest` does. Knows no remedy: `hints` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kernel_harness.build.digest import CompileError, errors, plain_quotes, undefined_symbol
from kernel_harness.build.errors import BuildFailed
from kernel_harness.build.hints import Hint, hint, missing_symbol, not_bindable


@dataclass(frozen=True)
class AuthorsFile:
    """The candidate's file: its name as the author would type it, and its text."""

    name: str
    text: str

    def line(self, number: int) -> str:
        """The line, counted from 1; empty where there is none."""
        lines = self.text.split("\n")
        return lines[number - 1].rstrip() if 0 < number <= len(lines) else ""

    def find(self, pattern: str) -> int | None:
        """The number of the first line, outside the docstring at the top, that matches."""
        top = re.match(r'\s*(?:"""|\'\'\')[\s\S]*?(?:"""|\'\'\')', self.text)
        match = re.compile(pattern).search(self.text, top.end() if top else 0)
        return self.text.count("\n", 0, match.start()) + 1 if match else None


@contextmanager
def in_the_authors_words(author: AuthorsFile) -> Iterator[None]:
    """What a compiler said within it is raised again as its author can read it."""
    try:
        yield
    except BuildFailed as failure:
        if not failure.compiled:  # the harness's own words, or told already
            raise
        raise BuildFailed(compile_message(failure.log, failure.compiled, author), failure.log) from None


def compile_message(log: str, compiled: str, author: AuthorsFile) -> str:
    """What a compiler's log means to the author; `compiled` is what it read, with its #line marks."""
    log = plain_quotes(log)
    found = errors(log, compiled)
    if not found:
        return log.strip()[-2000:]
    symbol = undefined_symbol(log) if not found[0].file else ""
    if symbol:
        return symbol_message(symbol, author)
    first = found[0]
    unbound = re.search(r"['\"](\w+)['\"]", first.text) if first.file == "bindings" else None
    if unbound:
        tip: Hint | None = not_bindable(unbound[1])
    else:
        tip = hint(first.text, first.source or author.line(first.line), first.column, _after(log, first))
    own = _in_authors_file(first, log, author, tip)
    if tip and tip.line_before:
        own = _at_line_before(own, author)
    return _shown(own, len(found) - 1, tip, author)


def symbol_message(symbol: str, author: AuthorsFile) -> str:
    """The same for a function that the linker or the loader misses."""
    tip = missing_symbol(symbol)
    error = CompileError(f"undefined symbol: {symbol}")
    return _shown(_about(error, author, tip.about), 0, tip, author)


def _shown(error: CompileError, others: int, tip: Hint | None, author: AuthorsFile) -> str:
    lines = [error.head]
    text = author.line(error.line) if error.file == author.name else error.source
    if error.file and text.strip():
        margin = f"  {error.line} | "
        lines.append(margin + text)
        span = _span(error, text)
        if span:
            pad = re.sub(r"[^\t]", " ", text[: span[0]])
            lines.append(" " * (len(margin) - 2) + "| " + pad + "^" + "~" * (span[1] - span[0] - 1))
    if others:
        lines.append(f"  ({others} more error{'s' if others > 1 else ''} after it)")
    if tip:
        lines.append(f"  hint: {tip.text}")
    return "\n".join(lines)


def _span(error: CompileError, text: str) -> tuple[int, int] | None:
    """Where in the author's line the error is: the same word as in the compiled one, which may be rewritten."""
    if error.column is None:  # nvcc does not always point: a name that it quotes and that is there once will do
        named = (re.finditer(rf"\b{name}\b", text) for name in re.findall(r"['\"](\w+)", error.text))
        return next((found[0].span() for found in map(list, named) if len(found) == 1), None)
    if not error.source.strip():
        return None
    if error.width:
        return error.column, error.column + error.width
    word = re.compile(r"\w+|\S").match(error.source, error.column)
    if not word:
        return None
    whole = rf"(?<!\w){re.escape(word[0])}(?!\w)" if word[0][0].isalnum() or word[0][0] == "_" else re.escape(word[0])
    if error.source.strip() == text.strip():
        start = error.column - _indent(error.source) + _indent(text)
        return start, start + len(word[0])
    before = [m.start() for m in re.finditer(whole, error.source)]
    mine = [m.span() for m in re.finditer(whole, text)]
    return mine[before.index(word.start())] if len(before) == len(mine) and word.start() in before else None


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _in_authors_file(error: CompileError, log: str, author: AuthorsFile, tip: Hint | None) -> CompileError:
    """The error at the line of the author's that led to it, where it is in a header, a flag or a generated source."""
    if error.file == author.name:
        return error
    if tip and tip.about:
        return _about(error, author, tip.about)
    name = re.escape(author.name)
    blamed = re.search(rf"{name}:(\d+)|at line (\d+) of \"?{name}|line (\d+)\s+of \"?{name}", log)
    if not blamed:
        return error
    where = f" (in {error.file}:{error.line})" if error.file else ""
    return CompileError(error.text + where, author.name, int(next(filter(None, blamed.groups()))))


def _about(error: CompileError, author: AuthorsFile, pattern: str) -> CompileError:
    number = author.find(pattern) if pattern else None
    if number is None:
        return error
    text = author.line(number)
    match = re.compile(pattern).search(text)
    if match is None:  # it begins there and goes on
        return CompileError(error.text, author.name, number)
    return CompileError(error.text, author.name, number, text, match.start(), match.end() - match.start())


def _at_line_before(error: CompileError, author: AuthorsFile) -> CompileError:
    """Where something was missing at the end of a line, compilers name the first word of the next one."""
    text = author.line(error.line)
    span = _span(error, text)
    number = error.line - 1
    while number > 0 and not author.line(number).strip():
        number -= 1
    before = author.line(number)
    if error.file != author.name or not span or text[: span[0]].strip() or not before or "//" in before:
        return error
    return CompileError(error.text, author.name, number, before + " ", len(before), 1)


def _after(log: str, error: CompileError) -> str:
    """What the compiler says of this error, up to the next one."""
    start = log.find(error.text) + len(error.text)
    following = re.compile(r"^\S.*\berror\b", re.MULTILINE).search(log, start)
    return log[start : following.start() if following else start + 2000]
