"""The emulated device: CUDA on the CPU. Its times are the emulation's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from kernel_harness.build import compiler
from kernel_harness.build.sources import Sources
from kernel_harness.device import Clocked, Placed, Steady
from kernel_harness.device.peaks import Peaks
from kernel_harness.emulator import compile as emulator
from kernel_harness.emulator import strict, torch_cuda
from kernel_harness.tensors import Leaf


class Emulated:
    """`--device cpu`."""

    name = "cpu"
    label = "cpu-emulated"
    torch_device = "cuda"
    emulated = True
    in_place = True
    # Emulated times predict nothing: a rough figure is all they are worth waiting for.
    budget_s = 2.0
    half_width = 0.05
    resolution_ms = 0.0

    def build_key(self, sources: Sources, /) -> str:
        """By the sources, this machine and the emulator's own code."""
        return emulator.key(sources)

    def build(self, sources: Sources, mark: Callable[[str], str], folder: Path, /) -> None:
        """Compiles for this processor. Raises BuildFailed, UnsupportedConstruct, NoCompiler."""
        emulator.build(sources, mark, folder)

    def built(self, library: Path) -> None:
        """Nothing has to know of it."""

    def prepare(self) -> None:
        """Builds the emulator. Raises NoCompiler."""
        emulator.prepare()

    def prepare_worker(self) -> None:
        """Turns the process into one with a CUDA device."""
        torch_cuda.install(emulator.runtime())

    def open(self) -> None:
        """Nothing is left to do."""

    def receive(self, memory: Any) -> None:
        """Nothing: inputs are never masked here."""

    def place(self, memory: Any, leaves: Sequence[Leaf], key: int | None = None) -> Placed:
        """The buffer's own bytes as device memory: whatever is written to them is seen by the judge."""
        return Placed([torch_cuda.as_cuda(leaf.view(memory)) for leaf in leaves], lambda: None)

    def fetch(self, tensors: Sequence[torch.Tensor], leaves: Sequence[Leaf], memory: Any) -> None:
        """Plain copies."""
        for leaf, tensor in zip(leaves, tensors, strict=True):
            leaf.view(memory).copy_(tensor)

    def timed(self, call: Callable[[], Any], *, hold: int, cold: bool) -> tuple[Any, Clocked]:
        """The emulation has no clock of its own: the judge's bracket is the time."""
        result = call()
        self.synchronize()
        return result, Clocked(None)

    def steady(self, call: Callable[[], Any]) -> Steady | None:
        """There are no graphs."""
        return None

    @contextmanager
    def memory(self, *, poisoned: bool) -> Iterator[None]:
        """Device memory starts as NaN here always."""
        yield

    def peaks(self) -> Peaks | None:
        """An emulation has none."""
        return None

    def ceilings(self) -> dict[str, float]:
        """Nothing that an emulation reaches says anything."""
        return {}

    def state(self) -> dict[str, Any]:
        """How busy the machine is."""
        return {"load": os.getloadavg()[0]}

    def exclusive(self, waiting: Callable[[], None]) -> AbstractContextManager[Any]:
        """Whoever evaluates thousands runs many at once: an emulation is nobody's alone."""
        return nullcontext()

    def launches(self) -> int | None:
        """Kernels launched so far in this process."""
        return torch_cuda.launches()

    def synchronize(self) -> None:
        """Raises RuntimeError once a kernel has failed."""
        torch_cuda.synchronize()

    def environment(self) -> dict[str, Any]:
        """The machine the emulation runs on."""
        return {"device": "CUDA emulated on the CPU", "threads": torch.get_num_threads(), **compiler.identity()}


class Strict(Emulated):
    """`--device cpu --strict`: nvcc has to take a source, too, before it runs."""

    name = "cpu-strict"

    def build_key(self, sources: Sources, /) -> str:
        """What nvcc has taken is another product."""
        return strict.key(super().build_key(sources))

    def build(self, sources: Sources, mark: Callable[[str], str], folder: Path, /) -> None:
        """As without --strict, after nvcc. Raises what it raises, and NoCompiler without nvcc."""
        strict.check(sources, mark, folder)
        super().build(sources, mark, folder)

    def prepare(self) -> None:
        """Builds the emulator. Raises NoCompiler, also where there is no nvcc."""
        strict.require()
        super().prepare()
