"""A compiler's log -> what of CUDA the emulation lacks, where that is why a source did not compile.

A name that CUDA does not have either is the author's mistake and stays an error.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

_HERE = Path(__file__).parent
_QUOTED = r"[\u2018'](?P<name>[\w:~]+)(?:\(.*?\))?[\u2019']"
_UNKNOWN = re.compile(
    rf"^(?P<where>[^\s:][^:\n]*:\d+)(?::\d+)?: (?:fatal )?error: {_QUOTED} "
    r"(?:was not declared|is not a member|has not been declared|does not name|in namespace|is not a class)",
    re.MULTILINE,
)
_OURS = re.compile(r"static assertion failed: emulator_unsupported: (?P<what>[^\n]*)")
_PLACE = re.compile(r"^(?P<where>[^\s:][^:\n]*:\d+):\d+:\s+required from", re.MULTILINE)


def lacking(log: str) -> tuple[str, str] | None:
    """`file:line` and the construct, for the first error of a compiler's log; None where the author is at fault."""
    for match in _UNKNOWN.finditer(log):
        name = match["name"].split("::")[-1]
        return (match["where"], name) if name in _names() else None
    ours = _OURS.search(log)
    if ours:
        places = [m["where"] for m in _PLACE.finditer(log) if str(_HERE) not in m["where"]]
        return (places[-1] if places else "source"), ours["what"]
    return None


@functools.cache
def _names() -> frozenset[str]:
    lines = (_HERE / "lacking.txt").read_text().splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())
