"""A compiler's log -> its errors, each with its place. What the author of a candidate reads is made in `message`."""

from __future__ import annotations

import linecache
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

# g++: file:line:column: error: text; nvcc: file(line): error: text; the linkers' own words.
_ERROR = re.compile(
    r"^(?P<file>[^\s:(][^:(\n]*?)(?::(?P<line>\d+)(?::(?P<column>\d+))?:|\((?P<nvline>\d+)\):)"
    r"\s*(?P<kind>fatal error|error|catastrophic error)\s*(?:#[\w-]+)?:\s*(?P<text>.*)$",
    re.MULTILINE,
)
_ELSEWHERE = re.compile(
    r"^.*(?:undefined (?:reference to|symbol:?)|cannot find -l|multiple definition of"
    r"|ptxas (?:error|fatal)\s*:|nvcc fatal\s*:|nvlink (?:error|fatal)\s*:).*$",
    re.MULTILINE,
)
_TOOL = re.compile(r"^(?:\S*/ld(?:\.\w+)?|ptxas (?:error|fatal)\s*|nvcc fatal\s*|nvlink (?:error|fatal)\s*): ")
_ANY = re.compile(r"^.*\b(?:error|fatal)\b.*$", re.MULTILINE | re.IGNORECASE)
# The line under an error that points at it: nvcc shows the source and a caret, g++ both behind a margin.
_POINTED = re.compile(r"(?:^ *\d+ \|)?(?P<source>.*)\n(?:^ *\|)?(?P<caret>[ \t]*)\^", re.MULTILINE)
_MARK = re.compile(r'#line (\d+) "(.*)"$')
_UNDEFINED = re.compile(r"undefined (?:symbol: |reference to [`']?)(?P<symbol>\w+)")


@dataclass(frozen=True)
class CompileError:
    """One error. `source` is the line as the compiler had it and `column` counts from 0 in it; None if unknown.

    An error of a linker or of nvcc itself has no file. `width` is how many characters are meant, 0 the word there.
    """

    text: str
    file: str = ""
    line: int = 0
    source: str = ""
    column: int | None = None
    width: int = 0

    @property
    def head(self) -> str:
        """`file:line: error: text`."""
        return f"{self.file}:{self.line}: error: {self.text}" if self.file else self.text


def plain_quotes(log: str) -> str:
    """The log as it would be in the C locale, whose quotes everybody can search for."""
    return log.translate({0x2018: "'", 0x2019: "'"})


def errors(log: str, compiled: str = "") -> list[CompileError]:
    """The errors of a compiler's or linker's log, in its order; `compiled` is what it read, with its #line marks."""
    log = plain_quotes(log)
    places = [_placed(match, log, compiled) for match in _ERROR.finditer(log)]
    if places:
        return list(dict.fromkeys(places))  # nvcc compiles twice, for the device and for the host
    found = [CompileError(_TOOL.sub("", demangled(match[0].strip()))) for match in _ELSEWHERE.finditer(log)]
    other = _ANY.search(log)
    return found or ([CompileError(other[0].strip())] if other else [])


def first_error(log: str) -> str:
    """`file:line: error: text` of the first error, with its source line; the log's end where none is recognised."""
    found = errors(log)
    if not found:
        return log.strip()[-2000:]
    text = linecache.getline(found[0].file, found[0].line) if found[0].file else ""
    return found[0].head + (f"\n  {found[0].line} | {text.rstrip()}" if text.strip() else "")


def compiled_text(folder: Path) -> str:
    """What the compilers read, of all the sources that a build left in its folder."""
    sources = sorted([*folder.glob("*.cpp"), *folder.glob("*.cu")])
    return "\n".join(path.read_text(errors="replace") for path in sources)


def compiled_line(compiled: str, file: str, line: int) -> str:
    """The line that marks attribute to `line` of `file`; empty where none is."""
    at, inside = 0, False
    for text in compiled.split("\n"):
        mark = _MARK.match(text)
        if mark:
            at, inside = int(mark[1]), mark[2] == file
            continue
        if inside and at == line:
            return text
        at += 1
    return ""


def undefined_symbol(message: str) -> str:
    """The function that a loader or linker misses, as C++ writes it; empty where it complains of something else."""
    found = _UNDEFINED.search(message)
    return demangled(found["symbol"]) if found else ""


def demangled(text: str) -> str:
    """The text with its mangled C++ names in the form that the author wrote."""
    tool = shutil.which("c++filt")
    if tool is None or "_Z" not in text:
        return text
    return subprocess.run([tool], input=text, capture_output=True, text=True).stdout.strip() or text


def _placed(match: re.Match[str], log: str, compiled: str) -> CompileError:
    file, line = match["file"], int(match["line"] or match["nvline"])
    source = compiled_line(compiled, file, line)
    column = int(match["column"]) - 1 if match["column"] else None
    pointed = _POINTED.match(log, match.end() + 1)
    if pointed and column is None:
        source, column = pointed["source"], len(pointed["caret"])
    elif pointed and not source:
        source = pointed["source"].removeprefix(" ")
    return CompileError(match["text"].strip(), file, line, source, column)
