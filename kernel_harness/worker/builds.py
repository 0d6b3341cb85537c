"""Builds in a worker: how a build request is carried out, and what a worker with a candidate does with the answer."""

from __future__ import annotations

import os
from pathlib import Path

from cuda_on_cpu.compile.errors import BuildFailed, CompilerFailed, UnsupportedConstruct
from cuda_on_cpu.compile.sources import from_json
from kernel_harness import device
from kernel_harness.compile import nvcc
from kernel_harness.ipc.build_messages import MOST_READ_FILES, Build, Built, Library
from kernel_harness.ipc.messages import Failure, Stage


def made(request: Build) -> tuple[Library, int]:
    """Compiles sources that another worker asked for. Returns the library's name and the files that the build read.

    Also returns a descriptor of the library, open for reading. Raises BuildFailed if the build fails.
    """
    folder = Path("build").absolute()
    folder.mkdir()
    sources = from_json(request.sources)
    device.named(request.device).build(sources, folder)
    library = next(folder.glob("*.so"), None)
    if library is None:
        raise BuildFailed("The build wrote no library: remove flags such as -o, which say where it is written.")
    read = nvcc.files_read(sources, folder)
    reply = Library(library.name, tuple(read) if len(read) <= MOST_READ_FILES else None)
    return reply, os.open(library, os.O_RDONLY | os.O_CLOEXEC)


def library_in(answer: Built | Failure) -> Path:
    """Returns the path of the library that the judge's answer names.

    Raises CompilerFailed if a compiler or a linker reported an error, UnsupportedConstruct if the emulator cannot run a
    construct in the sources, and BuildFailed, the base class of both, if the build failed otherwise. Messages call the
    sources by neutral names (`Sources.cpp_file`, `Sources.cuda_file`), not by the name of the candidate's file.
    """
    if isinstance(answer, Built):
        return Path(answer.library)
    if answer.type == CompilerFailed.__name__:
        raise CompilerFailed(answer.log)
    unsupported = answer.stage is Stage.UNSUPPORTED
    raise (UnsupportedConstruct if unsupported else BuildFailed)(answer.message, answer.log)
