"""The exceptions that a failed build raises. Each message is written for the author of the candidate."""

from __future__ import annotations

from kernel_harness.compile.compiler_log import first_error
from kernel_harness.core.errors import EnvironmentLacking


class BuildFailed(Exception):
    """The error raised if a candidate's sources cannot be compiled, linked or loaded.

    `log` is the compiler's whole output. `final` is true if it is known that torch's full headers would not help.
    """

    def __init__(self, message: str, log: str = "", *, final: bool = False) -> None:
        super().__init__(message)
        self.log, self.final = log, final


class ExtensionNotBuilt(BuildFailed, RuntimeError):
    """The error that load_inline raises in a candidate if the extension cannot be built.

    torch's load_inline raises RuntimeError. A candidate that catches it goes on without the extension.
    """


class CompilerFailed(BuildFailed):
    """The error raised if a compiler or linker fails. Its message is the first error in the output `log`."""

    def __init__(self, log: str) -> None:
        super().__init__(first_error(log), log)


class FullHeadersMissing(BuildFailed):
    """The error of a build that needs the precompiled form of torch's full headers, which this process cannot store.

    A worker process cannot write to the build cache. After this error of a worker, the judge builds the precompiled
    form, stores it in the build cache, and then repeats the build.
    """


class UnsupportedConstruct(BuildFailed):
    """The error raised if a candidate's source uses a CUDA construct that the emulator cannot run."""


class NoCompiler(EnvironmentLacking):
    """The error raised if this machine lacks a compiler or another tool that a build needs."""
