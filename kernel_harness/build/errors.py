"""How a build can fail. The sentence in each is for the candidate's author."""

from __future__ import annotations

from kernel_harness.errors import EnvironmentLacking


class BuildFailed(Exception):
    """The sources did not compile or link; `log` is everything the compiler said, `compiled` all that it read."""

    def __init__(self, message: str, log: str = "", compiled: str = "") -> None:
        super().__init__(message)
        self.log, self.compiled = log, compiled


class UnsupportedConstruct(BuildFailed):
    """The emulation cannot run a construct of the source."""


class NoCompiler(EnvironmentLacking):
    """This machine lacks what it takes to build any candidate."""
