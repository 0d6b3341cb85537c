"""The errors that a client is answered with: a sentence and the status code of HTTP."""

from __future__ import annotations

from kernel_harness.core.errors import NotFound, UserError


class Refused(UserError):
    """The error raised for a request that the server does not carry out. `code` is the status code of the answer."""

    def __init__(self, code: int, text: str, retry_after_s: int | None = None) -> None:
        super().__init__(text)
        self.code, self.retry_after_s = code, retry_after_s


def code_of(error: UserError) -> int:
    """Returns the status code of the answer to a request that raised `error`."""
    return error.code if isinstance(error, Refused) else 404 if isinstance(error, NotFound) else 400
