"""Finds more than 64 KiB of `__constant__` variables in a candidate, which ptxas, the assembler of nvcc, rejects."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from cuda_on_cpu.emulator.tokens import Kind, in_directive, line_of, next_code, places_of, text_at, tokenize

LIMIT_BYTES = 64 * 1024
# A line of readelf: number, address, size, type, binding, visibility, section, name.
_SYMBOL = re.compile(r"^\s*\d+: [0-9a-f]+\s+(?P<size>\d+|0x[0-9a-f]+) OBJECT .*? \d+ (?P<name>\S.*)$", re.MULTILINE)


def declared(source: str) -> dict[str, int]:
    """Returns the names that a CUDA source may declare as `__constant__` variables, and the line of each, from 1."""
    tokens = tokenize(source)
    found: dict[str, int] = {}
    for at in places_of(tokens, "__constant__"):
        if in_directive(tokens, at):
            continue
        end = at
        while end < len(tokens) and tokens[end].text not in (";", "=", "{"):
            is_word = tokens[end].kind is Kind.WORD
            if is_word and text_at(tokens, next_code(tokens, end + 1)) in ("[", ";", ",", "=", "{"):
                found.setdefault(tokens[end].text, line_of(tokens, end))
            end += 1
    return found


def total(objects: list[Path], names: set[str]) -> int:
    """Returns the bytes of the variables with these names in the object files at the paths `objects`."""
    if not names:
        return 0
    listed = subprocess.run(
        ["readelf", "--symbols", "--wide", "--demangle", *objects], capture_output=True, text=True, check=True
    ).stdout
    sizes = {m["name"]: int(m["size"], 0) for m in _SYMBOL.finditer(listed)}
    return sum(size for name, size in sizes.items() if name.rpartition("::")[2] in names)
