"""Finds the errors, with their files and lines, in the log of a compiler or linker.

The module `error_message` turns the errors into a message for the user.
"""

from __future__ import annotations

import linecache
import re
import shutil
import subprocess
from dataclasses import dataclass

# g++ writes `file:line:column: error: text`, and nvcc writes `file(line): error: text`.
_ERROR = re.compile(
    r"^(?P<file>[^\s:(][^:(\n]*?)(?::(?P<line>\d+)(?::(?P<column>\d+))?:|\((?P<nvline>\d+)\):)"
    r"\s*(?P<kind>fatal error|error|catastrophic error)\s*(?:#[\w-]+)?:\s*(?P<text>.*)$",
    re.MULTILINE,
)
# Linkers and nvcc's tools write lines with these words.
_OTHER_TOOL = re.compile(
    r"^.*(?:undefined (?:reference to|symbol:?)|cannot find -l|multiple definition of"
    r"|ptxas (?:error|fatal)\s*:|nvcc fatal\s*:|nvlink (?:error|fatal)\s*:).*$",
    re.MULTILINE,
)
_TOOL_PREFIX = re.compile(r"^(?:\S*/ld(?:\.\w+)?|ptxas (?:error|fatal)\s*|nvcc fatal\s*|nvlink (?:error|fatal)\s*): ")
_ANY_ERROR = re.compile(r"^.*\b(?:error|fatal)\b.*$", re.MULTILINE | re.IGNORECASE)
# The two lines below an error: the source line, and a caret that points to a column of it. g++ adds a left margin, and
# may underline words before the caret.
_POINTED = re.compile(r"(?:^ *\d+ \|)?(?P<source>.*)\n(?:^ *\|)?(?P<caret>[ \t~]*)\^", re.MULTILINE)
_UNDEFINED = re.compile(r"undefined (?:symbol: |reference to [`']?)(?P<symbol>\w+)")


@dataclass(frozen=True)
class CompileError:
    """One error in a compiler's or linker's log.

    `text` is the message. `source` is line `line` of `file` as the compiler read it, or empty if the log does not show
    it. `column` is the error's place in that line, counted from 0, or None if it is not known. `width` is the number of
    characters that the error spans; 0 means the word at `column`. An error of a linker, of ptxas or of nvcc's driver
    has no place: its `file` is empty and its `line` is 0.
    """

    text: str
    file: str = ""
    line: int = 0
    source: str = ""
    column: int | None = None
    width: int = 0

    @property
    def head(self) -> str:
        """Returns the error as `file:line: error: text`, or as `text` if it has no file."""
        return f"{self.file}:{self.line}: error: {self.text}" if self.file else self.text


def plain_quotes(log: str) -> str:
    """Returns the compiler's log with each typographic single quote replaced by a plain one, as in the C locale."""
    return log.translate({0x2018: "'", 0x2019: "'"})


def errors(log: str) -> list[CompileError]:
    """Returns the errors in the log of a compiler or linker, in order, each only once.

    If any error has a file and a line, only such errors are returned. Otherwise these are the errors of linkers and of
    nvcc's tools, or, without those, the first line with the word "error" or "fatal". The list may be empty.
    """
    log = plain_quotes(log)
    places = [_placed(match, log) for match in _ERROR.finditer(log)]
    if places:
        return list(dict.fromkeys(places))  # nvcc compiles for device and host, and reports an error for each
    found = [CompileError(_TOOL_PREFIX.sub("", demangled(match[0].strip()))) for match in _OTHER_TOOL.finditer(log)]
    other = _ANY_ERROR.search(log)
    return found or ([CompileError(other[0].strip())] if other else [])


def first_error(log: str) -> str:
    """Returns the first error in a compiler's log as `file:line: error: text`, or as `text` if it has no file.

    If that line of the file can be read and is not empty, it follows. If no error is found in the log, returns the last
    2000 characters of the log.
    """
    found = errors(log)
    if not found:
        return log.strip()[-2000:]
    text = linecache.getline(found[0].file, found[0].line) if found[0].file else ""
    return found[0].head + (f"\n  {found[0].line} | {text.rstrip()}" if text.strip() else "")


def undefined_symbol(message: str) -> str:
    """Returns the C++ name of the symbol that the message of a loader or linker reports as undefined.

    Returns an empty string for any other message.
    """
    found = _UNDEFINED.search(message)
    return demangled(found["symbol"]) if found else ""


def demangled(text: str) -> str:
    """Returns the text with its mangled C++ names in readable form.

    If the tool c++filt is not installed, returns the text unchanged.
    """
    tool = shutil.which("c++filt")
    if tool is None or "_Z" not in text:
        return text
    return subprocess.run([tool], input=text, capture_output=True, text=True).stdout.strip() or text


def _placed(match: re.Match[str], log: str) -> CompileError:
    file, line, source = match["file"], int(match["line"] or match["nvline"]), ""
    column = int(match["column"]) - 1 if match["column"] else None
    pointed = _POINTED.match(log, match.end() + 1)
    if pointed and column is None:
        source, column = pointed["source"], len(pointed["caret"])
    elif pointed:
        source = pointed["source"].removeprefix(" ")
    return CompileError(match["text"].strip(), file, line, source, column)
