"""How much static shared memory the kernels of an object file take: past a block's 48 KiB, nvcc refuses them."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from pathlib import Path

LIMIT_BYTES = 48 * 1024
# readelf: number, address, size, type, binding, visibility, section, name. Shared memory is thread-local.
_SYMBOL = re.compile(r"^\s*\d+: [0-9a-f]+\s+(?P<size>\d+|0x[0-9a-f]+) TLS .*? \d+ (?P<name>\S.*)$", re.MULTILINE)


def excess(objects: list[Path]) -> tuple[str, str, int] | None:
    """(function, one of its variables, bytes) of the first that has more than a block can have; None where none has."""
    said = subprocess.run(
        ["readelf", "--symbols", "--wide", "--demangle", *objects], capture_output=True, text=True, check=True
    ).stdout
    sizes: dict[str, int] = defaultdict(int)
    variables: dict[str, str] = {}
    for match in _SYMBOL.finditer(said):
        function, _, variable = match["name"].rpartition("::")
        if function.endswith((")", ") const")):
            sizes[function] += int(match["size"], 0)
            variables[function] = variable
    for function, size in sizes.items():
        if size > LIMIT_BYTES:
            return function, variables[function], size
    return None
