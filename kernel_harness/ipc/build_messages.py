"""The messages about builds: a candidate's worker asks the judge for a library, and the judge asks another worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from kernel_harness.ipc.schema import AtMost, Message

MOST_READ_FILES = 5000  # the headers of CUTLASS are about 600
_Path = Annotated[str, AtMost(4096)]


@dataclass(frozen=True)
class BuildWanted(Message):
    """A question from a worker to the judge in the middle of a request: where is the library built from these sources?

    `sources` is the JSON of a `compile.sources.Sources`. The judge has the sources compiled, unless the build cache has
    the library, and answers with Built or Failure. The worker then continues with the request.
    """

    sources: Any


@dataclass(frozen=True)
class Built(Message):
    """The judge's answer to BuildWanted: `library`, the path of the library, which the worker may then load."""

    library: _Path


@dataclass(frozen=True)
class Build(Message):
    """A request to a worker that has loaded no candidate: compile sources for a device. The reply is Library.

    `device` is the device's name. `sources` is the JSON of a `compile.sources.Sources`. The request has nothing else of
    the candidate, such as the name of its file, because the library is stored for all candidates with these sources.
    """

    device: str
    sources: Any


@dataclass(frozen=True)
class Library(Message):
    """The reply to Build: the file name of the library that was built, and the files that the build read.

    `read` has the absolute paths of these files, without those of compilers, system, torch, CUDA toolkit and harness.
    `read` is None if there are more than MOST_READ_FILES. One descriptor comes with the reply: the library, open for
    reading.
    """

    name: Annotated[str, AtMost(250)]
    read: Annotated[tuple[_Path, ...], AtMost(MOST_READ_FILES)] | None
