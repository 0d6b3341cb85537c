"""Finds kernels with more than 48 KiB of static shared memory per block in the object files of a candidate.

nvcc rejects such a kernel. The emulator's compiler, g++, does not, so the emulator looks at the compiled object files.
"""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

LIMIT_BYTES = 48 * 1024
OPT_IN_BYTES = 227 * 1024
"""The shared memory that a block may ask for on an H200 (CUDA C++ Programming Guide, "Compute Capability 9.x")."""
# A line of readelf: number, address, size, type, binding, visibility, section, name. A `__shared__` variable is
# thread-local (TLS) in the object file.
_SYMBOL = re.compile(r"^\s*\d+: [0-9a-f]+\s+(?P<size>\d+|0x[0-9a-f]+) TLS .*? \d+ (?P<name>\S.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Excess:
    """A function whose `__shared__` variables together are larger than the limit of a block.

    `bytes` is the total size of these variables, and `variable` is the name of one of them.
    """

    function: str
    variable: str
    bytes: int


def first_excess(objects: list[Path]) -> Excess | None:
    """Returns the first function in the object files with more static shared memory than the limit.

    Returns None if there is no such function. `objects` are the paths of the object files.
    """
    listed = subprocess.run(
        ["readelf", "--symbols", "--wide", "--demangle", *objects], capture_output=True, text=True, check=True
    ).stdout
    sizes: dict[str, int] = defaultdict(int)
    variables: dict[str, str] = {}
    for match in _SYMBOL.finditer(listed):
        function, _, variable = match["name"].rpartition("::")
        if function.endswith((")", ") const")):
            sizes[function] += int(match["size"], 0)
            variables[function] = variable
    for function, size in sizes.items():
        if size > LIMIT_BYTES:
            return Excess(function, variables[function], size)
    return None
