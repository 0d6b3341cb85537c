"""The source lines of machine instructions in a candidate's library, from the library's line table (DWARF)."""

from __future__ import annotations

import re
import subprocess
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

_MOST_FRAMES = 8
_LONGEST_NAME = 100
_FRAME = re.compile(r"(.*):(\d+)(?: \(discriminator \d+\))?")
_ADDRESS = re.compile(r" to (?:0x)?([0-9a-f]+)(?=$| |\[)")
_COLUMN = re.compile(r"Set column to (\d+)")


@dataclass(frozen=True)
class Place:
    """Where an instruction comes from.

    Each of `frames` has a file's name without its folder, a line and a function. The first is that of the instruction.
    If its function was inlined, those of the calls follow, outermost last. There are at most eight, or none if the line
    is unknown. `column` is the column in the first frame's line, counted from 1, or None if it is not known.
    """

    frames: tuple[tuple[str, int, str], ...]
    column: int | None


def places(library: Path, sites: Sequence[int]) -> dict[int, Place]:
    """Returns a dict from each of `sites`, addresses of instructions in the file `library`, to its place.

    The place of an address that the line table does not know has no frames and no column. Raises OSError if binutils
    are not installed.
    """
    frames = _frames(library, sites)
    columns = _columns(library)
    starts = [at for at, _ in columns]
    found = {}
    for site in sites:
        row = bisect_right(starts, site) - 1
        column = columns[row][1] if row >= 0 and frames[site] else 0
        found[site] = Place(tuple(frames[site][:_MOST_FRAMES]), column or None)
    return found


def _frames(library: Path, sites: Sequence[int]) -> dict[int, list[tuple[str, int, str]]]:
    command: list[str | Path] = ["addr2line", "-a", "-i", "-f", "-C", "-e", library, *map(hex, sites)]
    found: dict[int, list[tuple[str, int, str]]] = {site: [] for site in sites}
    site, function = -1, ""
    for line in subprocess.run(command, capture_output=True, text=True).stdout.splitlines():
        if line.startswith("0x"):
            site = int(line, 16)
        elif site in found and (frame := _FRAME.fullmatch(line)):
            if frame[1] != "??":
                found[site].append((PurePath(frame[1]).name, int(frame[2]), function[:_LONGEST_NAME]))
        else:
            function = line
    return found


def _columns(library: Path) -> list[tuple[int, int]]:
    """Returns pairs of an address and the column that the line table has from there on, sorted. Column 0: unknown."""
    command: list[str | Path] = ["readelf", "--debug-dump=rawline", library]
    rows: list[tuple[int, int]] = []
    address, column = 0, 0
    for line in subprocess.run(command, capture_output=True, text=True).stdout.splitlines():
        if found := _COLUMN.search(line):
            column = int(found[1])
            continue
        operation = line.partition("]")[2]
        if "Address" in operation or "Advance PC" in operation:
            moved = _ADDRESS.search(operation)
            address = int(moved[1], 16) if moved else address
        if "Special opcode" in operation or operation.strip().startswith("Copy"):
            rows.append((address, column))
        elif "End of Sequence" in operation:
            rows.append((address, 0))
            column = 0
    return sorted(rows, key=lambda row: row[0])  # stable: of equal addresses, the last row counts
