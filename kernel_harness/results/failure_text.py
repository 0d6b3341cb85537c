"""The text that explains a failed result: what failed, where, a map of the wrong elements, and what to try."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from textwrap import indent

from kernel_harness.checking.verify import Check
from kernel_harness.checking.wrong_elements import ErrorMap, Mismatch, cell_count
from kernel_harness.core.remark import RemarkKind
from kernel_harness.core.terminal import Terminal
from kernel_harness.results.cells import table
from kernel_harness.results.record import Result

_PICTURE_ROWS = 12
_PRINTED_LINES = 10
# From a regular expression to advice. The advice is for a failure whose reason matches the expression. The wording of
# these reasons is that of CUDA, the emulator and the C library.
_TIPS = {
    r"invalid configuration": "print grid and block at this shape: no dimension may be 0, a block has at most 1024 "
    "threads, and grid.y and grid.z at most 65535 blocks",
    r"too many resources|out of resources": "the block needs more registers or shared memory than the device has: use "
    "fewer threads, a smaller tile, or __launch_bounds__",
    r"misaligned address": "a vector type such as float4 needs an address that is a multiple of its size: check the "
    "start and the row length, and read single numbers where they do not fit",
    r"mask does not include": "each thread that calls a warp operation must be in its mask: pass 0xffffffff, or let "
    "only the threads of the mask call it",
    r"is host memory": "a kernel reads only memory of the GPU: let the C++ function take torch::Tensor, not a pointer, "
    "and pass data_ptr<float>() of tensors on the GPU to the kernel",
    r"incompatible function arguments": "compare the call with the parameters of the C++ function: their number, their "
    "order, and torch::Tensor, not a pointer, for each tensor",
    r"illegal memory access|SIGSEGV|SIGBUS|malloc\(\)|free\(\)|corrupt": "a thread reads or "
    "writes beyond an array: guard it with if (row < rows && column < columns), and print the sizes at this shape",
    r"__trap\(\)": "the kernel ends itself there: look for the condition that it reports",
    r"\b(?:an|the) mbarrier": "compare the arrivals with the count that the barrier is initialised with, the expected "
    "bytes with those that the copies bring, and the parity with the phase that the thread waits for",
    r"barrier of its cluster": "every thread of every block of the cluster must arrive at each barrier of the cluster",
    r"for a wgmma|wgmma with|different wgmma": "all 128 threads of a warpgroup must call the same "
    "wgmma, with descriptors of shared memory",
    r"unspecified launch failure|waits at a barrier|waits in a warp": "every thread of the block must reach each "
    "__syncthreads(): no thread may return before it or skip it in a branch",
    r"out of memory": "allocate less memory, or free the memory of earlier calls",
    r"Triton's interpreter runs": "if the sizes are small already, look for a loop that never ends",
    r"No answer within": "look for a loop that never ends, or a barrier that some threads never reach",
}
# Characters for a cell of the error map, by its share of wrong elements: none, up to a third, up to two thirds, more,
# all. The key says whether the terminal can show Unicode.
_SHADES = {True: " ░▒▓█", False: ".-+*#"}
_FRAME = {True: tuple("┌─┐│└┘"), False: tuple("+-+|++")}


def advice(result: Result, check: Check | None) -> str:
    """Returns what to try for a failed result, or an empty text.

    `check` is the check that failed; None if the failure was not in the comparison of an output. The advice is that of
    the sanitizer's finding, or of another remark, or of `check`. Without these, it is the tip for the first pattern in
    `_TIPS` that the reason matches.
    """
    ordered = sorted(result.remarks, key=lambda remark: remark.kind is not RemarkKind.SANITIZER)
    if advised := next((remark.advice for remark in ordered if remark.advice), ""):
        return advised
    return check.advice if check else next((tip for said, tip in _TIPS.items() if re.search(said, result.reason)), "")


def failure(result: Result, terminal: Terminal, log: str = "") -> str:
    """Returns a text of several lines that explains a failed result.

    `log` is the path of the file with the whole log of the result, or the empty text if there is no such file.
    """
    status = terminal.paint(str(result.status), "red")
    parts = [terminal.wrapped(f"{result.kernel}: {result.status}. {result.status.sentence}").replace(
        str(result.status), status, 1
    )]  # fmt: skip
    parts += [_line(line, terminal) for line in result.reason.split("\n")]
    check = next((c for c in reversed(result.checks) if not c.passed), None)
    parts += wrong_answer(check, terminal) if check else []
    parts += printed(result, _PRINTED_LINES)
    tip = advice(result, check)
    if tip:
        parts.append(terminal.wrapped(f"try: {tip}", "  "))
    if log:
        parts.append(f"  full log: {log}")
    if result.reproduce:
        parts.append(f"  reproduce: {result.reproduce}")
    return "\n".join(parts)


def printed(result: Result, most: int | None = None) -> list[str]:
    """Returns the last `most` lines that a kernel printed, indented below a heading, or nothing if it printed nothing.

    None stands for all lines that the result holds.
    """
    lines = result.printed.rstrip().split("\n") if result.printed.strip() else []
    shown = lines if most is None else lines[-most:]
    more = f", the last {len(shown)} lines" if len(shown) < len(lines) else ""
    return [f"  printed{more}:", *(f"    {line}" for line in shown)] if shown else []


def _line(text: str, terminal: Terminal) -> str:
    """Returns one line of the reason of a failure, indented and wrapped to the terminal's width.

    A line that quotes a compiler (an error with file and line, a source line or the caret below it) is not wrapped.
    """
    quoted = re.match(r"\S+:\d+: error:|\s*\d*\s*\|", text)
    return f"  {text}" if quoted else terminal.wrapped(text, "  ")


def wrong_answer(check: Check, terminal: Terminal) -> list[str]:
    """Returns the texts that explain a failed check: a table and a map of the wrong elements.

    The table is left out if it has fewer than two rows. The map is left out if the check has none, or if it does not
    help a reader (`_is_informative`).
    """
    parts = []
    if len(check.first_mismatches) > 1:
        parts.append(indent(mismatches(check.first_mismatches), "  "))
    if check.error_map is not None and _is_informative(check.error_map):
        parts.append(indent(picture(check.error_map, terminal), "  "))
    return parts


def mismatches(found: Sequence[Mismatch]) -> str:
    """Returns a table of wrong elements: index, the candidate's value, the right value, and their difference."""
    rows = [(str(list(m.index)), f"{m.got:.7g}", f"{m.expected:.7g}", f"{m.got - m.expected:.3g}") for m in found]
    headers = ("index", "got", "expected", "difference")
    return table(headers, rows, "plain", ("left", "right", "right", "right"))


def picture(errors: ErrorMap, terminal: Terminal) -> str:
    """Draws the map of wrong elements as text: a heading and, in a frame, one character per cell.

    The map is reduced to at most 12 rows and to the width of the terminal.
    """
    room = (terminal.width or 80) - 6
    cells = _reduced(errors.cells, _PICTURE_ROWS, max(8, room))
    left, line, right, side, low_left, low_right = _FRAME[terminal.unicode]
    width = len(cells[0])
    body = [terminal.paint("".join(_shade(c, terminal.unicode) for c in row), "red") for row in cells]
    shades = _SHADES[terminal.unicode]
    text = [
        f"wrong elements (rows 0-{errors.rows - 1} down, columns 0-{errors.columns - 1} across; "
        f"'{shades[0]}' none wrong, '{shades[-1]}' all wrong):",
        f"{left}{line * width}{right}",
        *(f"{side}{row}{side}" for row in body),
        f"{low_left}{line * width}{low_right}",
    ]
    return "\n".join(text)


def _is_informative(errors: ErrorMap) -> bool:
    """Returns whether a picture of the map helps a reader.

    The result is true if the map has at least 8 cells, and fewer than half of the elements of at least one cell are
    wrong.
    """
    cells = [cell for row in errors.cells for cell in row]
    return len(cells) >= 8 and any(cell < 0.5 for cell in cells)


def _reduced(cells: Sequence[Sequence[float]], rows: int, columns: int) -> list[list[float]]:
    """Reduces the grid `cells` to at most `rows` x `columns` cells: each is the mean of the cells that it replaces."""
    row_edges, column_edges = _edges(len(cells), rows), _edges(len(cells[0]), columns)
    means = []
    for top, bottom in pairwise(row_edges):
        parts = [[c for row in cells[top:bottom] for c in row[a:b]] for a, b in pairwise(column_edges)]
        means.append([sum(part) / len(part) for part in parts])
    return means


def _edges(size: int, most: int) -> list[int]:
    count = cell_count(size, most)
    return [i * size // count for i in range(count + 1)]


def _shade(share: float, unicode: bool) -> str:
    shades = _SHADES[unicode]
    if share <= 0 or share >= 1:
        return shades[0] if share <= 0 else shades[-1]
    return shades[1 + min(2, int(3 * share))]
