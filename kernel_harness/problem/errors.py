"""The error of a problem file that cannot be used."""

from __future__ import annotations

from pathlib import Path

from kernel_harness.core.errors import UserError, line_in


class ProblemError(UserError):
    """The error raised if a problem file cannot be used. The message names the file and the cause."""


def place_of(error: BaseException, path: Path) -> str:
    """Returns the problem file and the line in it, as in `p.py:12`, at which it raised `error` or called what did.

    Returns the file alone if the traceback has no line of it.
    """
    line = line_in(str(path), error)
    return str(path) if line is None else f"{path}:{line}"
