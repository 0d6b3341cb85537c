"""Tell: the type of the function that a long step calls with a text for the progress display."""

from __future__ import annotations

from collections.abc import Callable

Tell = Callable[[str], None]


def silent(text: str) -> None:
    """Ignores the text: a Tell for steps that show no progress."""
