"""Exceptions for a candidate that fails, a worker that cannot start, and a shape that a candidate declines."""

from __future__ import annotations

from kernel_harness.core.status import Status


class Fault(Exception):
    """The error raised if the candidate fails.

    `status` is the kind of failure, which becomes the verdict, and `reason` explains it to the user. `log` is a
    compiler's log, a traceback or what the worker printed; it may be empty. `lacked_memory` says that the judge found
    the device short of memory when the candidate failed. It rests on what the judge measured, never on a text.
    """

    def __init__(self, status: Status, reason: str, log: str = "", *, lacked_memory: bool = False) -> None:
        super().__init__(reason)
        self.status, self.reason, self.log, self.lacked_memory = status, reason, log, lacked_memory


class CannotStart(RuntimeError):
    """The error raised if a worker cannot open the device. The worker holds no candidate yet, so none is at fault."""


class Refused(Exception):
    """The error raised if the worker says that the candidate declines a shape. `log` is the traceback."""

    def __init__(self, reason: str, log: str = "") -> None:
        super().__init__(reason)
        self.log = log

    def as_fault(self) -> Fault:
        """Returns the Fault of a candidate that declines the timed shape."""
        return Fault(Status.RUNTIME_ERROR, str(self), self.log)
