"""The emulated device where everything is counted and nothing is timed; where nvcc is, its word on the kernels too."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernel_harness.build import cache, nvcc
from kernel_harness.build.errors import BuildFailed
from kernel_harness.build.sources import Sources
from kernel_harness.device.cpu import Emulated
from kernel_harness.emulator import compile as emulator
from kernel_harness.emulator import torch_cuda

# Before what is noted behind a library's end, where loaders do not read: a build gives one file.
_NOTE = b"\0kernel_harness.assembled\0"


class Profiled(Emulated):
    """`cpu` as the verb `profile` runs it."""

    name = "cpu-profiled"

    def build_key(self, sources: Sources, /) -> str:
        """As the emulated device's, with what nvcc is."""
        return cache.key(counted=emulator.key(sources, emulator.Watch.COUNTED), nvcc=str(nvcc.toolkit()))

    def build(self, sources: Sources, mark: Callable[[str], str], folder: Path, /) -> None:
        """Compiles with a call before every access, and notes what nvcc says. Raises as Emulated.build."""
        emulator.build(sources, mark, folder, emulator.Watch.COUNTED)
        with (folder / f"{sources.name}.so").open("ab") as library:
            library.write(_NOTE + json.dumps(assembled(sources, mark)).encode())

    def profile(self, step: str) -> dict[str, Any]:
        """One step, as the judge asks for it: `begin` to count, or `end` with what was counted."""
        if step == "begin":
            torch_cuda.profile_begin()
            return {}
        return {"launches": torch_cuda.profile_end()}


def note_of(library: Path) -> dict[str, str]:
    """What `build` noted of a library's kernels."""
    said = json.loads(library.read_bytes().rpartition(_NOTE)[2])
    return said if isinstance(said, dict) else {}


def assembled(sources: Sources, mark: Callable[[str], str], arch: str = "sm_90") -> dict[str, str]:
    """`ptxas`: what the assembler says of the CUDA source's kernels; or `missing`: why it says nothing."""
    if nvcc.toolkit() is None:
        return {"missing": "there is no nvcc"}
    try:
        return {"ptxas": nvcc.assembler_says(sources, mark, arch)}
    except BuildFailed as failure:
        return {"missing": f"nvcc does not compile this: {failure}"}
