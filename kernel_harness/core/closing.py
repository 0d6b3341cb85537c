"""Closing: the base class of what a `with` block closes at its end."""

from __future__ import annotations

from typing import Self


class Closing:
    """An object with a method `close`, which the end of a `with` block calls."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends what the object owns."""
        raise NotImplementedError
