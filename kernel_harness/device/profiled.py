"""The emulated device where everything is counted and nothing is timed; where nvcc is, its word on the kernels too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernel_harness.build import nvcc
from kernel_harness.build.errors import BuildFailed
from kernel_harness.build.sources import Sources
from kernel_harness.device.cpu import Emulated
from kernel_harness.emulator import compile as emulator
from kernel_harness.emulator import torch_cuda


class Profiled(Emulated):
    """`cpu` as the verb `profile` runs it."""

    name = "cpu-profiled"

    def __init__(self) -> None:
        self._assembled: list[dict[str, str]] = []

    def build(self, sources: Sources, mark: Callable[[str], str], /) -> tuple[Path, bool]:
        """Compiles with a call before every access. Raises BuildFailed, UnsupportedConstruct, NoCompiler."""
        self._assembled.append(assembled(sources, mark))
        return emulator.extension(sources, mark, counted=True)

    def profile(self, step: str) -> dict[str, Any]:
        """One step, as the judge asks for it: `begin` to count, or `end` with what was counted."""
        if step == "begin":
            torch_cuda.profile_begin()
            return {}
        return {"launches": torch_cuda.profile_end(), "assembled": self._assembled}


def assembled(sources: Sources, mark: Callable[[str], str], arch: str = "sm_90") -> dict[str, str]:
    """`ptxas`: what the assembler says of the CUDA source's kernels; or `missing`: why it says nothing."""
    if nvcc.toolkit() is None:
        return {"missing": "there is no nvcc"}
    try:
        return {"ptxas": nvcc.assembler_says(sources, mark, arch)}
    except BuildFailed as failure:
        return {"missing": f"nvcc does not compile this: {failure}"}
