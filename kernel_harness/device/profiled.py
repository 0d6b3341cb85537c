"""The emulated device for the command `profile`, which counts the memory accesses and barriers of kernels.

If nvcc is installed, the device also records what ptxas reports about each kernel, such as its registers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cuda_on_cpu.compile import cache
from cuda_on_cpu.compile.errors import BuildFailed, NoCompiler
from cuda_on_cpu.compile.sources import Sources
from cuda_on_cpu.core.tell import Tell, silent
from cuda_on_cpu.emulator import extension, shared_parts, source_lines, torch_cuda, triton_interpreter
from cuda_on_cpu.emulator.flags import Instrumentation
from cuda_on_cpu.emulator.keys import extension_key
from kernel_harness.compile import nvcc
from kernel_harness.device.cpu import Emulated

# A build returns one file. So ptxas's report is appended to the library, after this mark. Loaders do not read there.
_NOTE = b"\0kernel_harness.assembled\0"


class Profiled(Emulated):
    """The emulated device, which counts the memory accesses and barriers of each kernel launch."""

    name = "cpu-profiled"

    def prepare(self, tell: Tell = silent) -> None:
        """Builds the emulator, and the precompiled header for code that reports its memory accesses.

        Raises BuildFailed if a part cannot be built, and NoCompiler if this machine lacks a tool for the build.
        """
        shared_parts.prepare(reporting=True, tell=tell)

    def build_key(self, sources: Sources, /) -> str:
        """Returns the build cache's key of the candidate's library with counters, with nvcc's version."""
        counted = extension_key(sources, Instrumentation.COUNTED)
        return cache.key(counted=counted, nvcc=nvcc.identity())

    def build(self, sources: Sources, folder: Path, /) -> None:
        """Compiles the library with a counting call before each memory access, and appends ptxas's report to the file.

        Raises UnsupportedConstruct if a source uses CUDA that the emulator cannot run, BuildFailed if the build fails
        for another reason, and NoCompiler if this machine lacks a tool for the build.
        """
        extension.build(sources, folder, Instrumentation.COUNTED)
        with (folder / f"{sources.name}.so").open("ab") as library:
            library.write(_NOTE + json.dumps(assembled(sources)).encode())

    def begin_profile(self) -> None:
        """Starts to count the memory accesses, basic blocks and barriers of kernels."""
        torch_cuda.profile_begin()

    def end_profile(self) -> dict[str, list[dict[str, Any]]]:
        """Stops counting. Returns, under `launches`, one dict for each launch since `begin_profile`, in order.

        Under `compiled` are the Triton kernels of this process (`triton_compiler.Compiler.reports`).

        The dict of a launch holds its sizes, the numbers of bytes accessed and of barriers, and for each instruction
        that accessed memory in the sampled blocks, what it did and from which lines of the sources it comes. For each
        basic block that ran there, it holds how often it ran and its lines.
        """
        launched = torch_cuda.profile_end()
        _add_places([each for launch in launched for each in launch["instructions"] + launch["steps"]])
        return {"launches": launched, "compiled": triton_interpreter.compiled()}


def _add_places(instructions: Sequence[dict[str, Any]]) -> None:
    """Replaces the keys `library` and `site` (an address) of each item by the keys `frames` and `column`.

    An item of `instructions` is an instruction or a basic block. `frames` and `column` are the fields of
    `source_lines.Place`: the source line of the item, the lines of the inlined calls that led to it, and the column in
    the first line. Without binutils, `frames` is empty and `column` is None.
    """
    sites: dict[str, set[int]] = {}
    for each in instructions:
        each["site"] -= 1  # it is a return address, which may belong to the next line
        sites.setdefault(each["library"], set()).add(each["site"])
    known: dict[tuple[str, int], source_lines.Place] = {}
    for library, at in sites.items():
        with suppress(OSError):
            found = source_lines.places(Path(library), sorted(at))
            known.update({(library, site): place for site, place in found.items()})
    for each in instructions:
        place = known.get((each.pop("library"), each.pop("site")), source_lines.Place((), None))
        each["frames"], each["column"] = place.frames, place.column


def note_of(library: Path) -> dict[str, str]:
    """Returns the report of ptxas that `Profiled.build` appended to the file `library`.

    The report is a dict in the form that `assembled` returns: ptxas's text, or the reason why there is none. A library
    without a readable report counts as one without ptxas's text: the candidate's flags may have changed the file, or
    the build cache has evicted it.
    """
    try:
        said = json.loads(library.read_bytes().rpartition(_NOTE)[2])
        return {key: str(text) for key, text in said.items()}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {"missing": "the built library has no report of ptxas"}


def assembled(sources: Sources, arch: str = "sm_90") -> dict[str, str]:
    """Returns what ptxas reports about the kernels of the CUDA source, as text under the key `ptxas`.

    If there is no report, returns the reason under the key `missing`. `arch` is the architecture that nvcc compiles
    for.
    """
    if nvcc.toolkit() is None:
        return {"missing": "there is no nvcc"}
    try:
        return {"ptxas": nvcc.assembler_report(sources, arch)}
    except NoCompiler as lacking:
        return {"missing": str(lacking)}
    except BuildFailed as failure:
        return {"missing": f"nvcc does not compile the source: {failure}"}
