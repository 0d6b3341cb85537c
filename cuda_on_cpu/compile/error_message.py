"""Writes the message for a failed build: the first error, its line in the candidate's file, a caret and a hint.

The module `compiler_log` finds the errors in the compiler's output, and the module `hints` holds the hints.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from cuda_on_cpu.compile.candidate_file import CandidateFile
from cuda_on_cpu.compile.compiler_log import CompileError, errors, plain_quotes, undefined_symbol
from cuda_on_cpu.compile.errors import BuildFailed, CompilerFailed, ExtensionNotBuilt
from cuda_on_cpu.compile.hints import Hint, hint, missing_symbol, not_bindable

# The definition of a C++ function {name} of which a parameter is a pointer, but not a text. It is no kernel.
_TAKES_POINTERS = (
    r"(?m)^[ \t]*(?!.*__global__)\w[^\n;{{}}()#=]*\b{name}(?=\s*\((?:[^(){{}};]*,)?(?!\s*(?:const\s+)?char\b)"
    r"[^(){{}};,]*\*[^(){{}};]*\)\s*\{{)"
)


@contextmanager
def readable_errors(file: CandidateFile, bound: Iterable[str] = ()) -> Iterator[None]:
    """Returns a context that replaces a BuildFailed by an exception whose message and log name the lines of `file`.

    The new exception is an ExtensionNotBuilt for a CompilerFailed and for a BuildFailed of no subclass. For any other
    subclass of BuildFailed, it has the class of the old exception. Other exceptions pass unchanged. The message for a
    CompilerFailed is that of `compile_message`; any other keeps its message, with the lines of `file`. `bound` has the
    names of the C++ functions that Python calls. If one of them takes pointers, the message of a CompilerFailed first
    says so.
    """
    try:
        yield
    except CompilerFailed as failure:
        message = "\n".join(filter(None, [_pointers_message(bound, file), compile_message(failure.log, file)]))
        raise ExtensionNotBuilt(message, file.translated(failure.log)) from None
    except BuildFailed as failure:
        kind = ExtensionNotBuilt if type(failure) is BuildFailed else type(failure)
        raise kind(file.translated(str(failure)), file.translated(failure.log)) from None


def compile_message(log: str, file: CandidateFile) -> str:
    """Returns the message for the author of a candidate: the log's first error, the line in `file`, and a hint.

    `log` is the compiler's output. If no error is found in the log, the message is the last 2000 characters of the log.
    """
    log = plain_quotes(log)
    found = [file.moved(error) for error in errors(log)]
    log = file.translated(log)
    if not found:
        return log.strip()[-2000:]
    symbol = undefined_symbol(log) if not found[0].file else ""
    if symbol:
        return symbol_message(symbol, file)
    first = found[0]
    unbound = re.search(r"['\"](\w+)['\"]", first.text) if first.file == "bindings" else None
    if unbound:
        tip: Hint | None = not_bindable(unbound[1])
    else:
        tip = hint(first.text, first.source or file.line(first.line), first.column, _after(log, first))
    placed = _in_candidate_file(first, log, file, tip)
    if tip and tip.line_before:
        placed = _at_line_before(placed, file)
    return _shown(placed, len(found) - 1, tip, file)


def symbol_message(symbol: str, file: CandidateFile) -> str:
    """Returns the message for `symbol`, a C++ function that the linker or the loader did not find, with a hint.

    `file` is the candidate's file. The message shows the line of `file` that the hint is about, if there is such a
    line.
    """
    tip = missing_symbol(symbol)
    error = CompileError(f"undefined symbol: {symbol}")
    return _shown(_about(error, file, tip.about), 0, tip, file)


def name_message(name: str, file: CandidateFile) -> str:
    """Returns the message for `name`, the name of an extension that cannot be a part of a C++ identifier.

    It shows the line of the candidate's `file` that gives the name, if the name stands there as a literal.
    """
    tip = Hint(f"name it {re.sub(r'[^0-9A-Za-z_]', '_', name) or 'kernel'}")
    error = CompileError(f"the extension's name {name!r} becomes a part of C++ names: use letters, digits and _ only")
    literal = rf"""["']{re.escape(name)}["']"""
    placed = _about(error, file, rf"\bname\s*=\s*{literal}")
    return _shown(placed if placed.file else _about(error, file, rf"\(\s*{literal}"), 0, tip, file)


def _pointers_message(bound: Iterable[str], file: CandidateFile) -> str:
    """Returns the message for the first function named in `bound` that takes pointers, or an empty text if none does.

    Looks for its definition in `file`. A kernel, and a pointer to char, do not count. Such a function may compile, but
    its author has usually given it a kernel's parameters by mistake. The compiler's errors, such as a local variable
    with the name of a parameter, then follow from that.
    """
    for name in bound:
        pattern = _TAKES_POINTERS.format(name=re.escape(name))
        if file.find(pattern) is not None:
            tip = Hint("take torch::Tensor, and pass tensor.data_ptr<float>() to the kernel")
            wrong = _about(CompileError(f"{name} takes pointers, but Python passes tensors"), file, pattern)
            return _shown(wrong, 0, tip, file)
    return ""


def _shown(error: CompileError, others: int, tip: Hint | None, file: CandidateFile) -> str:
    lines = [error.head]
    text = file.line(error.line) if error.file == file.name else error.source
    if error.file and text.strip():
        margin = f"  {error.line} | "
        lines.append(margin + text)
        span = _span(error, text)
        if span:
            pad = re.sub(r"[^\t]", " ", text[: span[0]])
            lines.append(" " * (len(margin) - 2) + "| " + pad + "^" + "~" * (span[1] - span[0] - 1))
    if others:
        lines.append(f"  ({others} more error{'s' if others > 1 else ''} after this one)")
    if tip:
        lines.append(f"  hint: {tip.text}")
    return "\n".join(lines)


def _span(error: CompileError, text: str) -> tuple[int, int] | None:
    """Returns the first column of `error` in `text`, and the column after its end, counted from 0; None if uncertain.

    `text` is a line of the candidate's file. The compiler may have read a rewritten form of it. So the function takes
    the word at the error's place in the line that the compiler read, and searches `text` for this word. For an error
    without a column, it takes a name that the message quotes and that occurs once in `text`.
    """
    if error.column is None:  # nvcc gives none for some errors: use a name that the message quotes, if it occurs once
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


def _in_candidate_file(error: CompileError, log: str, file: CandidateFile, tip: Hint | None) -> CompileError:
    """Returns an error in a header, a flag or generated code as an error at the line of `file` that caused it.

    `file` is the candidate's file. That line is the one that `tip.about` matches, or, without this pattern, the first
    one with the macro that the error is about, or the first one that `log` mentions. Returns the error unchanged if it
    is already in `file`, or if no such line is found.
    """
    if error.file == file.name:
        return error
    if tip and tip.about:
        return _about(error, file, tip.about)
    # g++ places a name that a macro of the flags has replaced where its precompiled header ends.
    macro = re.match(r"\s*\S+: note: in definition of macro '(\w+)'", _after(log, error))
    if macro and file.find(used := rf"(?m)^(?!\s*(?:#|//|\*)).*?\b{macro[1]}\b") is not None:
        return _about(replace(error, text=f"{error.text} (the flags define the macro {macro[1]})"), file, used)
    name = re.escape(file.name)
    blamed = re.search(rf"{name}:(\d+)|at line (\d+) of \"?{name}|line (\d+)\s+of \"?{name}", log)
    if not blamed:
        return error
    where = f" (in {error.file}:{error.line})" if error.file else ""
    return CompileError(error.text + where, file.name, int(next(filter(None, blamed.groups()))))


def _about(error: CompileError, file: CandidateFile, pattern: str) -> CompileError:
    number = file.find(pattern) if pattern else None
    if number is None:
        return error
    text = file.line(number)
    match = re.compile(pattern).search(text)
    if match is None:  # the pattern matches over several lines
        return CompileError(error.text, file.name, number)
    return CompileError(error.text, file.name, number, text, match.start(), match.end() - match.start())


def _at_line_before(error: CompileError, file: CandidateFile) -> CompileError:
    """Returns the error with its place moved to the end of the previous non-empty line.

    Compilers report a missing semicolon at the next word. Returns the error unchanged if that word does not start its
    line, if the error is not in `file`, or if the previous line has a comment.
    """
    text = file.line(error.line)
    span = _span(error, text)
    number = error.line - 1
    while number > 0 and not file.line(number).strip():
        number -= 1
    before = file.line(number)
    if error.file != file.name or not span or text[: span[0]].strip() or not before or "//" in before:
        return error
    return CompileError(error.text, file.name, number, before + " ", len(before), 1)


def _after(log: str, error: CompileError) -> str:
    """Returns the part of the compiler's output `log` between the text of `error` and the next error.

    Without a next error, it is the 2000 characters after the text.
    """
    start = log.find(error.text) + len(error.text)
    following = re.compile(r"^\S.*\berror\b", re.MULTILINE).search(log, start)
    return log[start : following.start() if following else start + 2000]
