"""Replaces the leaderboards in a README. Each is between two marker lines (`START`, which names it, and `END`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from kernel_harness.core.atomic_file import replace_text
from kernel_harness.core.errors import UserError

START, END = "<!-- leaderboard {problem}/{device} -->", "<!-- end -->"
_START = re.compile(r"^<!-- leaderboard (?P<problem>[^\s/]+)/(?P<device>[^\s/]+) -->[ \t]*$", re.M)
_COMMENT = re.compile(r"^<!-- .* -->[ \t]*$", re.M)


def rewrite(path: Path, table: Callable[[str, str], str]) -> list[str]:
    """Replaces the text between each pair of marker lines in the file `path`.

    The first marker of a pair names a problem and a device, and `table(problem, device)` is the new text. Returns the
    name of each pair, as `problem/device`. The file is replaced atomically, and only if its text changes. Raises
    UserError if the file has no marker, a marker has no end, `table` raises UserError, or the file cannot be read or
    written; it is then unchanged. The message names the file and, for a wrong marker, the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None
    names, parts, done = [], [], 0
    for start in _START.finditer(text):
        line = text.count("\n", 0, start.start()) + 1
        end = _COMMENT.search(text, start.end())
        if end is None or end[0].strip() != END:
            raise UserError(
                f"{path}:{line}: this marker has no line {END} after it; add that line where the table ends"
            )
        problem, device = start["problem"], start["device"]
        try:
            new = table(problem, device)
        except UserError as error:
            raise UserError(f"{path}:{line}: {error}") from None
        parts += [text[done : start.end()], f"\n\n{new}\n\n"]
        names.append(f"{problem}/{device}")
        done = end.start()
    if not names:
        marker = START.format(problem="matmul_tt", device="cpu-emulated")
        raise UserError(f"{path} has no marker like {marker}; add one, and {END} on a line below it")
    changed = "".join([*parts, text[done:]])
    if changed != text:
        try:
            replace_text(path, changed)
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror or error}; name another --readme") from None
    return names
