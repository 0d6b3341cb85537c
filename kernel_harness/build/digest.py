"""A compiler's log -> the few lines a person needs: the first error, where it is, and its source line."""

from __future__ import annotations

import linecache
import re
import shutil
import subprocess

# g++: file:line:column: error: text; nvcc: file(line): error: text; the linkers' own words.
_ERROR = re.compile(
    r"^(?P<file>[^\s:(][^:(\n]*?)(?::(?P<line>\d+)(?::(?P<column>\d+))?:|\((?P<nvline>\d+)\):)"
    r"\s*(?P<kind>fatal error|error|catastrophic error)\s*(?:#[\w-]+)?:\s*(?P<text>.*)$",
    re.MULTILINE,
)
_LINK = re.compile(r"^.*(?:undefined (?:reference to|symbol:?)|cannot find -l|multiple definition of).*$", re.MULTILINE)
_ANY = re.compile(r"^.*\b(?:error|fatal)\b.*$", re.MULTILINE | re.IGNORECASE)


def first_error(log: str) -> str:
    """`file:line: error: text` of the first error in a compiler's or linker's log, with its source line.

    The whole log, cut, where it holds no error that is recognised.
    """
    match = _ERROR.search(log)
    if match:
        line = int(match["line"] or match["nvline"])
        head = f"{match['file']}:{line}: error: {match['text'].strip()}"
        return head + _excerpt(match["file"], line)
    other = _LINK.search(log) or _ANY.search(log)
    return other[0].strip() if other else log.strip()[-2000:]


def _excerpt(file: str, line: int) -> str:
    text = linecache.getline(file, line)  # knows the candidate's own text, wherever this process stands
    return f"\n  {line} | {text.rstrip()}" if text.strip() else ""


def undefined_symbol(message: str) -> str:
    """What a loader's complaint about a missing symbol means; empty where it is about something else."""
    symbol = re.search(r"undefined symbol: (\w+)", message)
    if not symbol:
        return ""
    tool = shutil.which("c++filt")
    name = subprocess.run([tool, symbol[1]], capture_output=True, text=True).stdout.strip() if tool else symbol[1]
    if re.match(r"(?:c10|at|torch)::", name):
        return f"undefined symbol: {name}; torch has it under another ABI: drop -D_GLIBCXX_USE_CXX11_ABI"
    return f"undefined symbol: {name}; its declaration in cpp_sources differs from every definition in cuda_sources"
