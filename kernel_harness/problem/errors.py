"""The error of a problem file that cannot be used."""

from __future__ import annotations

import traceback
from pathlib import Path

from kernel_harness.core.errors import UserError


class ProblemError(UserError):
    """The error raised if a problem file cannot be used. The message names the file and the cause."""


def place_of(error: BaseException, path: Path) -> str:
    """Returns the problem file and the line in it, as in `p.py:12`, at which it raised `error` or called what did.

    Returns the file alone if the traceback has no line of it.
    """
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"{path}:{lines[-1]}" if lines else str(path)
