"""The errors whose cause the user can fix. The command prints the message and ends with the class's exit code."""

from __future__ import annotations


class UserError(Exception):
    """The error raised if the user's request is invalid, for example because of an unknown name."""

    exit_code = 2


class NotFound(UserError):
    """The error raised if a name selects no problem or kernel, or several kernels where one is needed.

    For an unknown name, the message suggests a similar name.
    """


class ProblemNotFound(NotFound):
    """The error raised if no problem has the name `name`."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class EnvironmentLacking(UserError):
    """The error raised if this machine cannot serve a valid request, for example because it has no compiler."""

    exit_code = 4
