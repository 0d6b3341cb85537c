"""The error of a problem file that cannot be used."""

from __future__ import annotations

from kernel_harness.core.errors import UserError


class ProblemError(UserError):
    """The error raised if a problem file cannot be used. The message names the file and the cause."""
