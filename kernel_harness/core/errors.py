"""The errors whose cause the user can fix. The command prints the message and ends with the class's exit code."""

from __future__ import annotations

from cuda_on_cpu.core.errors import EnvironmentLacking as EnvironmentLacking
from cuda_on_cpu.core.errors import UserError as UserError


class NotFound(UserError):
    """The error raised if names or paths do not select the problem or the kernels that a command needs.

    Examples: an unknown name, several kernels where one is needed, two kernels with one name, and a reserved name. For
    an unknown name, the message suggests a similar name or lists the known names.
    """


class ProblemNotFound(NotFound):
    """The error raised if `name`, the name or path that the user gave, selects no problem file."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name
