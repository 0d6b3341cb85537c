"""The emulated device with its sanitizer on: the same kernels, slower, and every access looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from kernel_harness import tensors
from kernel_harness.build.sources import Sources
from kernel_harness.device import Clocked, Placed
from kernel_harness.device.cpu import Emulated
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
        return emulator.key(sources, sanitized=True)

    def build(self, sources: Sources, mark: Callable[[str], str], folder: Path, /) -> None:
        """Compiles with a call before every access. Raises BuildFailed, UnsupportedConstruct, NoCompiler."""
        emulator.build(sources, mark, folder, sanitized=True)

    def built(self, library: Path) -> None:
        """Its shared arrays get their names."""
        if self._sanitizer:
            self._sanitizer.name_arrays(library)

    def place(self, memory: Any, leaves: Sequence[Leaf]) -> Placed:
        """Each input in memory of its own, with room around it."""
        assert self._sanitizer
        placed = []
        for i, leaf in enumerate(leaves, 1):
            host = leaf.view(memory)
            tensor = torch.empty_strided(host.shape, host.stride(), dtype=host.dtype, device=self.torch_device)
            placed.append(tensor.copy_(host))
            self._sanitizer.name(tensor, f"input {i}", read_only=True)
        return Placed(placed, lambda: None)

    def timed(self, call: Callable[[], Any], *, hold: int, cold: bool) -> tuple[Any, Clocked]:
        """The call, and then what it left."""
        assert self._sanitizer
        result, clocked = super().timed(call, hold=hold, cold=cold)
        self._outputs = tensors.flatten(result)[1]
        self._sanitizer.end(self._outputs)
        return result, clocked
