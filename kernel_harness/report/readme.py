"""Leaderboards between a README's markers, rewritten from stored results. What they say is leaderboard's."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from kernel_harness.errors import UserError
from kernel_harness.files import replace_text

START, END = "<!-- leaderboard {problem}/{device} -->", "<!-- end -->"
_START = re.compile(r"^<!-- leaderboard (?P<problem>[^\s/]+)/(?P<device>[^\s/]+) -->[ \t]*$", re.M)
_COMMENT = re.compile(r"^<!-- .* -->[ \t]*$", re.M)


class MarkerError(UserError):
    """The file's markers cannot be followed; the message names the file and the line."""


def rewrite(path: Path, table: Callable[[str, str], str]) -> list[str]:
    """Puts `table(problem, device)` between each pair of markers. Which were there, as problem/device.

    The file is replaced whole, and left alone where nothing in it changes. Raises MarkerError.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise MarkerError(f"{path} cannot be read: {error.strerror or error}") from None
    names, parts, done = [], [], 0
    for start in _START.finditer(text):
        line = text.count("\n", 0, start.start()) + 1
        end = _COMMENT.search(text, start.end())
        if end is None or end[0].strip() != END:
            raise MarkerError(f"{path}:{line}: no line {END} follows this marker; add one where its table ends")
        problem, device = start["problem"], start["device"]
        try:
            new = table(problem, device)
        except UserError as error:
            raise MarkerError(f"{path}:{line}: {error}") from None
        parts += [text[done : start.end()], f"\n\n{new}\n\n"]
        names.append(f"{problem}/{device}")
        done = end.start()
    if not names:
        marker = START.format(problem="matmul_tt", device="cpu-emulated")
        raise MarkerError(f"{path} has no marker like {marker}; add one, and {END} on a line below it")
    changed = "".join([*parts, text[done:]])
    if changed != text:
        replace_text(path, changed)
    return names
