"""What the place that text goes to can show: how wide it is, which characters, whether colours. Prints nothing."""

from __future__ import annotations

import os
import shutil
import textwrap
from dataclasses import dataclass
from typing import TextIO

_CODES = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}


def printable(text: str) -> str:
    """Without what no file or terminal takes: lone surrogates and control characters."""
    return "".join(c if c in "\n\t" or c.isprintable() else "\ufffd" for c in text)


@dataclass(frozen=True)
class Terminal:
    """`width` is None where nobody looks on, as in a pipe: lines are then as long as they are."""

    width: int | None = None
    unicode: bool = True
    colours: bool = False

    def paint(self, text: str, colour: str) -> str:
        """The text in one of red, green, yellow, bold, dim; unchanged where there are no colours."""
        return f"\033[{_CODES[colour]}m{text}\033[0m" if self.colours and text else text

    def wrapped(self, text: str, indent: str = "") -> str:
        """The text's lines, each folded at words where it is wider than the terminal, and indented."""
        lines = text.split("\n")
        if self.width is not None:
            room = max(20, self.width - len(indent))
            lines = [part for line in lines for part in textwrap.wrap(line, room, break_on_hyphens=False) or [""]]
        return "\n".join(indent + line for line in lines)


def terminal(stream: TextIO) -> Terminal:
    """What is known of a stream. NO_COLOR (https://no-color.org) and TERM=dumb mean no colours."""
    try:
        shown = stream.isatty()
    except ValueError:  # closed
        shown = False
    colours = shown and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    # A size of nothing is what a pseudo-terminal has that nobody gave one.
    width = shutil.get_terminal_size((100, 24)).columns if shown else None
    return Terminal(width, _can_show("░█│", stream), colours)


def _can_show(text: str, stream: TextIO) -> bool:
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
