"""The exceptions that a failed build raises. Each message is written for the author of the candidate."""

from __future__ import annotations

from cuda_on_cpu.compile.compiler_log import first_error
from cuda_on_cpu.core.errors import EnvironmentLacking


class BuildFailed(Exception):
    """The error raised if a candidate's sources cannot be compiled, linked or loaded.

    `log` is the compiler's whole output, or empty if there is none. A build with light headers that fails is repeated
    with torch's full headers, unless `final` is true: then the full headers would not help.
    """

    def __init__(self, message: str, log: str = "", *, final: bool = False) -> None:
        super().__init__(message)
        self.log, self.final = log, final


class ExtensionNotBuilt(BuildFailed, RuntimeError):
    """The error that load_inline raises in a candidate if the extension cannot be built.

    It is also a RuntimeError, as the error of torch's load_inline is. So a candidate that catches RuntimeError goes on
    without the extension.
    """


class CompilerFailed(BuildFailed):
    """The error raised if a compiler or linker fails. Its message is `first_error(log)`, and `log` is the output."""

    def __init__(self, log: str) -> None:
        super().__init__(first_error(log), log)


class FullHeadersMissing(BuildFailed):
    """The error raised if a build needs the precompiled form of torch's full headers and the build cache lacks it.

    It is raised in a process that cannot write to the build cache, such as a worker. If a worker reports this error,
    the judge builds the precompiled form, stores it in the build cache, and then repeats the build.
    """


class UnsupportedConstruct(BuildFailed):
    """The error raised if a candidate's source uses a CUDA construct that the emulator cannot run."""


class NoCompiler(EnvironmentLacking):
    """The error raised if this machine lacks a compiler or another tool that a build needs."""
