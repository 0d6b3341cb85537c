"""Devices for the command `sanitize`: each memory access of kernels is checked, and calls are not timed.

The emulated device uses the emulator's sanitizer. On a CUDA device, the worker runs under the tool compute-sanitizer.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from cuda_on_cpu.compile import cache
from cuda_on_cpu.compile.candidate_file import CandidateFile
from cuda_on_cpu.compile.sources import Sources
from cuda_on_cpu.core.tell import Tell, silent
from cuda_on_cpu.emulator import extension, shared_parts
from cuda_on_cpu.emulator.flags import Instrumentation
from cuda_on_cpu.emulator.keys import extension_key
from cuda_on_cpu.emulator.sanitize import Sanitizer
from kernel_harness.device.cpu import Emulated
from kernel_harness.device.cuda import Cuda
from kernel_harness.device.protocol import Placed, SharedMemory
from kernel_harness.ipc import input_memory
from kernel_harness.ipc.shared_memory import SharedBuffer
from kernel_harness.ipc.tensors import Leaf


class Sanitized(Emulated):
    """The emulated device with the emulator's sanitizer."""

    name = "cpu-sanitized"

    def __init__(self) -> None:
        self._sanitizer: Sanitizer | None = None
        self._outputs: list[torch.Tensor] = []

    def prepare(self, tell: Tell = silent) -> None:
        """Builds the emulator, and the precompiled header for code with calls of the sanitizer.

        Raises BuildFailed if a part cannot be built, and NoCompiler if this machine lacks a tool for the build.
        """
        shared_parts.prepare(reporting=True, tell=tell)

    def begin_sanitizing(self, file: CandidateFile) -> None:
        """Switches the sanitizer on, in a worker. `file` is the candidate's file, which reports refer to."""
        self._sanitizer = Sanitizer(shared_parts.runtime(), file)

    def sanitize_next_call(self, order: int, *, checks: bool) -> None:
        """Prepares the sanitizer for the next call, whose memory accesses are checked if `checks` is true.

        `order` is the order in which the threads of a kernel run: 0 is forward, 1 is reverse, and any other number is
        the seed of a random order.
        """
        assert self._sanitizer
        self._outputs = []
        self._sanitizer.begin(order, checks=checks)

    def findings(self, blame: tuple[int, ...] | None) -> list[dict[str, Any]]:
        """Returns the faults that the sanitizer found in the last call, such as accesses out of bounds.

        If `blame` is given, the sanitizer also reports that one element of an output depends on the order of the
        threads. `blame` then holds the index of the output and the row-major index of the element.
        """
        assert self._sanitizer
        if blame is not None:
            output, element = blame
            self._sanitizer.report_order_dependence(self._outputs[output], element)
        return self._sanitizer.findings()

    def build_key(self, sources: Sources, /) -> str:
        """Returns the build cache's key of the candidate's library for the emulator, with calls to the sanitizer."""
        return extension_key(sources, Instrumentation.SANITIZED)

    def build(self, sources: Sources, folder: Path, /) -> None:
        """Compiles the candidate's library with a call of the sanitizer before each memory access.

        Raises UnsupportedConstruct if a source uses CUDA that the emulator cannot run, BuildFailed if the build fails
        for another reason, and NoCompiler if this machine lacks a tool for the build.
        """
        extension.build(sources, folder, Instrumentation.SANITIZED)

    def built(self, library: Path) -> None:
        """Tells the sanitizer the names of the `__shared__` arrays in `library`, which is loaded next."""
        if self._sanitizer:
            self._sanitizer.name_arrays(library)

    def place(self, memory: torch.Tensor, leaves: Sequence[Leaf]) -> Placed:
        """Copies the storage of each input into an allocation of its own on the device, and returns the inputs there.

        The sanitizer then finds accesses out of bounds, because unused bytes surround each allocation. `leaves`
        describe the inputs in `memory`: dtype, shape, strides, offset and storage.
        """
        assert self._sanitizer

        def alone(start: int, end: int) -> torch.Tensor:
            return torch.empty(end - start, dtype=torch.uint8, device=self.torch_device).copy_(memory[start:end])

        inputs = input_memory.placed(leaves, alone)
        for i, tensor in enumerate(inputs, 1):
            self._sanitizer.name(tensor, f"input {i}", read_only=True)
        return Placed(inputs, lambda: None)

    def fetch(self, outputs: Sequence[torch.Tensor], leaves: Sequence[Leaf], memory: torch.Tensor) -> None:
        """Ends the sanitizer's checks of the call, and then copies each output tensor into the shared buffer `memory`.

        `leaves` describe the tensors in order: dtype, shape, strides and offset in `memory`.
        """
        assert self._sanitizer
        self._outputs = list(outputs)
        self._sanitizer.end(self._outputs)
        super().fetch(outputs, leaves, memory)


class SanitizedCuda(Cuda):
    """A CUDA device for a worker that runs under compute-sanitizer."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = f"{name}-sanitized"

    @property
    def name_in_workers(self) -> str:
        """Returns the name by which workers open this device."""
        return f"{super().name_in_workers}-sanitized"

    def build_key(self, sources: Sources, /) -> str:
        """Returns the build cache's key of the candidate's library with line numbers, for a CUDA device."""
        return cache.key(with_lines=super().build_key(sources))

    def build(self, sources: Sources, folder: Path, /) -> None:
        """Compiles the candidate's library with line numbers for compute-sanitizer.

        Raises BuildFailed if the library cannot be built, and NoCompiler if the CUDA toolkit lacks a header that a
        source includes.
        """
        os.environ["NVCC_APPEND_FLAGS"] = "-lineinfo"  # this process makes no other build
        super().build(sources, folder)

    def share(self, size: int) -> SharedMemory:
        """Returns new memory of the host, of at least `size` bytes, that a worker can map.

        Memory of the device is not used: compute-sanitizer may not know device memory that another process allocated.
        """
        return SharedBuffer(size)

    def place(self, memory: torch.Tensor, leaves: Sequence[Leaf]) -> Placed:
        """Copies the storage of each input into an allocation of its own on the device, and returns the inputs there.

        compute-sanitizer checks the bounds of allocations, and so those of each input. `leaves` describe the inputs in
        `memory`: dtype, shape, strides, offset and storage.
        """
        inputs = input_memory.placed(leaves, lambda start, end: memory[start:end].to(self.torch_device))
        return Placed(inputs, lambda: None)
