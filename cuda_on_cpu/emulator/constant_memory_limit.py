"""Finds more than 64 KiB of `__constant__` variables in a candidate, which ptxas, the assembler of nvcc, rejects."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from cuda_on_cpu.compile.cuda_source import declared_variables, in_directive, line_of, places_of, tokenize

LIMIT_BYTES = 64 * 1024
# A line of readelf: number, address, size, type, binding, visibility, section, name.
_SYMBOL = re.compile(r"^\s*\d+: [0-9a-f]+\s+(?P<size>\d+|0x[0-9a-f]+) OBJECT .*? \d+ (?P<name>\S.*)$", re.MULTILINE)


def declared(source: str) -> dict[str, int]:
    """Returns the names that a CUDA source may declare as `__constant__` variables, and the line of each, from 1."""
    tokens = tokenize(source)
    found: dict[str, int] = {}
    for at in places_of(tokens, "__constant__"):
        for name in declared_variables(tokens, at) if not in_directive(tokens, at) else ():
            found.setdefault(tokens[name].text, line_of(tokens, name))
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
