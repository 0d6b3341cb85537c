"""Devices whose every access is looked at: the emulated one by its own sanitizer, CUDA by a tool around the worker.

Nothing is timed on them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from kernel_harness.build import cache
from kernel_harness.build.sources import Sources
from kernel_harness.device import Placed
from kernel_harness.device.cpu import Emulated
from kernel_harness.device.cuda import Cuda
from kernel_harness.emulator import compile as emulator
from kernel_harness.emulator.sanitize import Sanitizer
from kernel_harness.tensors import Leaf


class Sanitized(Emulated):
    """`cpu` as the verb `sanitize` runs it."""

    name = "cpu-sanitized"

    def __init__(self) -> None:
        self._sanitizer: Sanitizer | None = None
        self._outputs: list[torch.Tensor] = []

    def prepare(self) -> None:
        """Builds the emulator, and the headers as sanitized code needs them. Raises NoCompiler."""
        emulator.prepare(sanitized=True)

    def sanitize(self, message: dict[str, Any]) -> dict[str, Any]:
        """One step, as the judge asks for it.

        watch: switches the sanitizer on, for a candidate's file.
        begin: what the next call is: the order of its threads, and whether accesses are looked at.
        findings: of the last call; `blame` names an output and its element that another order changes.
        """
        if message["step"] == "watch":
            self._sanitizer = Sanitizer(emulator.runtime(), message["file"], message["source"])
            return {}
        assert self._sanitizer
        if message["step"] == "begin":
            self._outputs = []
            self._sanitizer.begin(message["order"], checks=message["checks"])
            return {}
        if message["blame"] is not None:
            output, element = message["blame"]
            self._sanitizer.blame(self._outputs[output], element)
        return {"findings": self._sanitizer.findings()}

    def build_key(self, sources: Sources, /) -> str:
        """Sanitized code is other code."""
        return emulator.key(sources, emulator.Watch.SANITIZED)

    def build(self, sources: Sources, mark: Callable[[str], str], folder: Path, /) -> None:
        """Compiles with a call before every access. Raises BuildFailed, UnsupportedConstruct, NoCompiler."""
        emulator.build(sources, mark, folder, emulator.Watch.SANITIZED)

    def built(self, library: Path) -> None:
        """Its shared arrays get their names."""
        if self._sanitizer:
            self._sanitizer.name_arrays(library)

    def place(self, memory: Any, leaves: Sequence[Leaf], key: int | None = None) -> Placed:
        """Each input in memory of its own, with room around it."""
        assert self._sanitizer
        placed = []
        for i, leaf in enumerate(leaves, 1):
            host = leaf.view(memory)
            tensor = torch.empty_strided(host.shape, host.stride(), dtype=host.dtype, device=self.torch_device)
            placed.append(tensor.copy_(host))
            self._sanitizer.name(tensor, f"input {i}", read_only=True)
        return Placed(placed, lambda: None)

    def fetch(self, outputs: Sequence[torch.Tensor], leaves: Sequence[Leaf], memory: Any) -> None:
        """A look at what the call left, before the judge gets it."""
        assert self._sanitizer
        self._outputs = list(outputs)
        self._sanitizer.end(self._outputs)
        super().fetch(outputs, leaves, memory)


class SanitizedCuda(Cuda):
    """`cuda` or `cuda:N` in a worker that compute-sanitizer watches, which knows bounds by the allocation."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = f"{name}-sanitized"

    def build_key(self, sources: Sources, /) -> str:
        """A build that knows its lines is another one."""
        return cache.key(with_lines=super().build_key(sources))

    def build(self, sources: Sources, mark: Callable[[str], str], folder: Path, /) -> None:
        """Compiles with line numbers. Raises BuildFailed."""
        os.environ["NVCC_APPEND_FLAGS"] = "-lineinfo"  # this process builds, and nothing else
        super().build(sources, mark, folder)

    def place(self, memory: Any, leaves: Sequence[Leaf], key: int | None = None) -> Placed:
        """Each input in an allocation of its own."""
        return Placed([leaf.view(memory).to(self.torch_device) for leaf in leaves], lambda: None)
