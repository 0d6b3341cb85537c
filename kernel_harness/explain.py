"""A failure as a person reads it: what, where, a picture of the errors, what to try. Finds nothing out by itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from tabulate import tabulate

from kernel_harness.error_map import ErrorMap, cell_count
from kernel_harness.patterns import Mismatch
from kernel_harness.results import Result
from kernel_harness.terminal import Terminal
from kernel_harness.verify import Check

_PICTURE_ROWS = 12
# What to do about failures at run time, by the words of CUDA, the emulation and the C library.
_TIPS = {
    r"invalid configuration": "print grid and block at this shape: no dimension may be 0, a block has at most 1024 "
    "threads, and grid.y and grid.z at most 65535 blocks",
    r"too many resources|out of resources": "the block needs more registers or shared memory than there are: use "
    "fewer threads, a smaller tile, or __launch_bounds__",
    r"illegal memory access|misaligned address|SIGSEGV|SIGBUS|malloc\(\)|free\(\)|corrupted": "a thread reads or "
    "writes beyond an array: guard it, as in if (row < rows && column < columns), and look at the sizes of this shape",
    r"unspecified launch failure|waits at a barrier|waits in a warp": "every thread of the block must reach each "
    "__syncthreads(): let no thread return before it or branch around it",
    r"out of memory": "allocate less, or free what an earlier call left",
    r"No answer within": "look for a loop that never ends, or a barrier that some threads never reach",
}
# None of a cell's elements is wrong, up to a third, two thirds, nearly all, all.
_SHADES = {True: " ░▒▓█", False: ".-+*#"}
_FRAME = {True: tuple("┌─┐│└┘"), False: tuple("+-+|++")}


def failure(result: Result, terminal: Terminal, log: str = "") -> str:
    """Several lines; `log` is the path of the whole log, if it was written."""
    status = terminal.paint(str(result.status), "red")
    parts = [terminal.wrapped(f"{result.kernel}: {result.status}. {result.status.sentence}").replace(
        str(result.status), status, 1
    )]  # fmt: skip
    parts += [_line(line, terminal) for line in result.reason.split("\n")]
    check = next((c for c in reversed(result.checks) if not c.passed), None)
    parts += wrong_answer(check, terminal) if check else []
    tip = "" if check else next((tip for said, tip in _TIPS.items() if re.search(said, result.reason)), "")
    if tip:
        parts.append(terminal.wrapped(f"try: {tip}", "  "))
    if log:
        parts.append(f"  the whole log: {log}")
    if result.reproduce:
        parts.append(f"  again: {result.reproduce}")
    return "\n".join(parts)


def _line(text: str, terminal: Terminal) -> str:
    """A line of a reason: folded, unless it is a compiler's head line, or a source line or the caret under it."""
    quoted = re.match(r"\S+:\d+: error:|\s*\d*\s*\|", text)
    return f"  {text}" if quoted else terminal.wrapped(text, "  ")


def wrong_answer(check: Check, terminal: Terminal) -> list[str]:
    """The first mismatches, the picture and the advice; what there is of them."""
    parts = []
    if len(check.first_mismatches) > 1:
        parts.append(_indented(mismatches(check.first_mismatches)))
    if check.error_map is not None and _tells(check.error_map):
        parts.append(_indented(picture(check.error_map, terminal)))
    if check.advice:
        parts.append(terminal.wrapped(f"try: {check.advice}", "  "))
    return parts


def mismatches(found: Sequence[Mismatch]) -> str:
    """A table of wrong elements."""
    rows = [(str(list(m.index)), f"{m.got:.7g}", f"{m.expected:.7g}", f"{m.got - m.expected:.3g}") for m in found]
    headers = ("index", "got", "expected", "difference")
    return tabulate(rows, headers, "plain", colalign=("left", "right", "right", "right"), disable_numparse=True)


def picture(errors: ErrorMap, terminal: Terminal) -> str:
    """The map in characters, framed, at most as wide as the terminal and a dozen lines high."""
    room = (terminal.width or 80) - 6
    cells = _fewer(errors.cells, _PICTURE_ROWS, max(8, room))
    left, line, right, side, low_left, low_right = _FRAME[terminal.unicode]
    width = len(cells[0])
    body = [terminal.paint("".join(_shade(c, terminal.unicode) for c in row), "red") for row in cells]
    shades = _SHADES[terminal.unicode]
    text = [
        f"where (rows 0-{errors.rows - 1} down, columns 0-{errors.columns - 1} across; "
        f"'{shades[0]}' right, '{shades[-1]}' all wrong):",
        f"{left}{line * width}{right}",
        *(f"{side}{row}{side}" for row in body),
        f"{low_left}{line * width}{low_right}",
    ]
    return "\n".join(text)


def _tells(errors: ErrorMap) -> bool:
    """Whether a picture says more than the count: not of one line of a few, and not where nearly all is wrong."""
    cells = [cell for row in errors.cells for cell in row]
    return len(cells) >= 8 and any(cell < 0.5 for cell in cells)


def _fewer(cells: Sequence[Sequence[float]], rows: int, columns: int) -> list[list[float]]:
    """At most rows x columns of them, each the mean of those it stands for."""
    tall, wide = _groups(len(cells), rows), _groups(len(cells[0]), columns)
    means = []
    for top, bottom in pairwise(tall):
        parts = [[c for row in cells[top:bottom] for c in row[a:b]] for a, b in pairwise(wide)]
        means.append([sum(part) / len(part) for part in parts])
    return means


def _groups(size: int, most: int) -> list[int]:
    count = cell_count(size, most)
    return [i * size // count for i in range(count + 1)]


def _shade(share: float, unicode: bool) -> str:
    shades = _SHADES[unicode]
    if share <= 0 or share >= 1:
        return shades[0] if share <= 0 else shades[-1]
    return shades[1 + min(2, int(3 * share))]


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))
