"""What goes wrong on the user's side. Each message says what, where, and what to do; the command prints it alone."""

from __future__ import annotations


class UserError(Exception):
    """A mistake in what was asked for."""

    exit_code = 2


class EnvironmentLacking(UserError):
    """What was asked for cannot be done on this machine as it is."""

    exit_code = 4
