"""The errors whose cause the user can fix. The command prints the message and ends with the class's exit code."""

from __future__ import annotations

import traceback

from cuda_on_cpu.core.errors import EnvironmentLacking as EnvironmentLacking
from cuda_on_cpu.core.errors import UserError as UserError


def line_in(file: str, error: BaseException) -> int | None:
    """Returns the line of `file` at which `error` was raised, or that called the code that raised it.

    For a SyntaxError in `file`, it is the line of that error. Returns None if the traceback has no line of `file`.
    """
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return frames[-1].lineno if frames else None


class NotFound(UserError):
    """The error raised if names or paths do not select the problem or the kernels that a command needs.

    Examples: an unknown name, several kernels where one is needed, two kernels with one name, and a reserved name. For
    an unknown name, the message suggests a similar name or lists the known names.
    """
