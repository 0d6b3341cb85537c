"""Marks the accesses of 16 bytes to objects whose alignment is 8, in the assembly code of a candidate.

A GPU makes two accesses of 8 bytes of each. g++ reports them as it reports those to objects whose alignment is 16, but
moves only the latter by instructions for aligned addresses. For other processors than x86, nothing is marked.
"""

from __future__ import annotations

import re

# The call that reports an access, a move of 16 bytes between memory and a register, or the end of a function. A move
# relative to the stack pointer is one of a local variable.
_REPORT = re.compile(r"\tcall\t__tsan_(read|write)(\w+)")
_MOVE = re.compile(r"\tv?mov(dqa|dqu|aps|ups|apd|upd)\t(%xmm\d+, )?(?!.*%rsp).*\(.*\)")
_END = "\t.size\t"


def mark(assembly: str) -> str:
    """Returns the text of an assembly file in which other calls report such accesses.

    These are `emulator_read16_by_8` and `emulator_write16_by_8`.
    """
    lines = assembly.split("\n")
    reports: dict[str, int] = {}  # the line of the last report of 16 bytes, until its move comes
    for at, line in enumerate(lines):
        if report := _REPORT.match(line):
            reports.pop(report[1], None)
            if report[2] == "16":
                reports[report[1]] = at
        elif reports and (move := _MOVE.match(line)):
            called = reports.pop("write" if move[2] else "read", None)
            if called is not None and "u" in move[1]:
                lines[called] = re.sub(r"__tsan_(\w+)", r"emulator_\1_by_8", lines[called])
        elif line.startswith(_END):
            reports.clear()
    return "\n".join(lines)
