"""Finds the width of an output stream and what it can show, and folds and colours texts for the stream."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

_CODES = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}


def printable(text: str) -> str:
    """Returns the text with every unprintable character except newline and tab replaced by U+FFFD.

    Files cannot hold lone surrogates, and control characters could change what a terminal shows.
    """
    return "".join(c if c in "\n\t" or c.isprintable() else "\ufffd" for c in text)


@dataclass(frozen=True)
class Terminal:
    """What one output stream can show.

    `width` is the number of columns, or None for a pipe or a file, whose lines are not folded. `unicode` says whether
    the stream can show block and line characters, and `colours` whether it shows colours.
    """

    width: int | None = None
    unicode: bool = True
    colours: bool = False

    def paint(self, text: str, colour: str) -> str:
        """Returns the text with escape codes for `colour`: red, green, yellow, bold or dim.

        Returns the text unchanged if the stream has no colours.
        """
        return f"\033[{_CODES[colour]}m{text}\033[0m" if self.colours and text else text

    def wrapped(self, text: str, indent: str = "") -> str:
        """Returns the text with `indent` before each line. Folds lines that are too wide, between words if possible."""
        lines = text.split("\n")
        if self.width is not None:
            room = max(20, self.width - len(indent))
            lines = [part for line in lines for part in textwrap.wrap(line, room, break_on_hyphens=False) or [""]]
        return "\n".join(indent + line for line in lines)


def terminal(stream: TextIO) -> Terminal:
    """Returns the Terminal of `stream`: its width, and whether it can show Unicode and colours.

    Only a terminal has a width and colours. The environment variables NO_COLOR (https://no-color.org) and TERM=dumb
    switch colours off.
    """
    try:
        shown = stream.isatty()
    except ValueError:  # the stream is closed
        shown = False
    colours = shown and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    # The fallback is for a pseudo-terminal whose size was never set, which reports 0 columns and 0 lines.
    width = shutil.get_terminal_size((100, 24)).columns if shown else None
    return Terminal(width, _can_show("░█│", stream), colours)


def _can_show(text: str, stream: TextIO) -> bool:
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


@contextmanager
def shown_meanwhile(text: str) -> Iterator[None]:
    """Returns a context in which stderr shows a line with `text`, which is erased at the end, if it is a terminal."""
    if terminal(sys.stderr).width is None:
        yield
        return
    print(f"  {text}", end="\r", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        print(" " * (len(text) + 2), end="\r", file=sys.stderr, flush=True)
