"""The errors whose cause the user can fix. A command prints the message and ends with the class's exit code."""

from __future__ import annotations


class UserError(Exception):
    """The base class of errors that the user can fix. Raised itself for an invalid request, such as an unknown name."""

    exit_code = 2


class EnvironmentLacking(UserError):
    """The error raised if this machine or a Ray cluster lacks what a valid request needs, for example a compiler."""

    exit_code = 4
