"""The emulated device: it runs CUDA kernels on the CPU. Its times say nothing about a GPU."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import torch

from cuda_on_cpu.compile import host_compiler
from cuda_on_cpu.compile.sources import Sources
from cuda_on_cpu.core.tell import Tell, silent
from cuda_on_cpu.emulator import extension, shared_parts, torch_cuda, triton_interpreter
from cuda_on_cpu.emulator.keys import extension_key
from kernel_harness.compile import strict
from kernel_harness.device.hold import Hold
from kernel_harness.device.policy import EMULATED
from kernel_harness.device.protocol import Device, Placed
from kernel_harness.ipc import input_memory
from kernel_harness.ipc.messages import Clocked
from kernel_harness.ipc.shared_memory import SharedBuffer, map_shared
from kernel_harness.ipc.tensors import Leaf


class Emulated(Device):
    """The emulated device, which `--device cpu` selects."""

    name = "cpu"
    label = "cpu-emulated"
    shares = "host memory"
    torch_device = "cuda"
    emulated = True
    policy = EMULATED

    def build_key(self, sources: Sources, /) -> str:
        """Returns the build cache's key of the candidate's library.

        The key is a hash of the sources, this machine and the emulator's code.
        """
        return extension_key(sources)

    def build(self, sources: Sources, folder: Path, /) -> None:
        """Compiles the candidate's library for this machine's CPU, into the empty folder `folder`.

        Raises UnsupportedConstruct if a source uses CUDA that the emulator cannot run, BuildFailed if the build fails
        for another reason, and NoCompiler if this machine lacks a tool for the build.
        """
        extension.build(sources, folder)

    def prepare(self, tell: Tell = silent) -> None:
        """Builds the parts of the emulator that all candidates share.

        Raises BuildFailed if a part cannot be built, and NoCompiler if this machine lacks a tool for the build.
        """
        shared_parts.prepare(tell=tell)

    def prepare_full_headers(self) -> None:
        """Builds the precompiled form of torch's full headers.

        Raises NoCompiler if this machine lacks a tool for the build, and OSError if the build cache cannot be written.
        """
        shared_parts.full_prelude()

    def prepare_worker(self) -> None:
        """Installs the emulated CUDA device in the torch of this process.

        The fork server calls this method before it forks a worker, so that the workers inherit the device.
        """
        torch_cuda.install(shared_parts.runtime())
        triton_interpreter.install()

    def share(self, size: int) -> SharedBuffer:
        """Returns new memory of the host, of at least `size` bytes, that a worker can map."""
        return SharedBuffer(size)

    def map(self, descriptor: int, size: int, *, on_device: bool) -> torch.Tensor:
        """Maps shared memory of the judge into this process. Returns the memory as a flat uint8 tensor of `size` bytes.

        `descriptor` is the file descriptor of the memory, which is always memory of the host.
        """
        return map_shared(descriptor, size)

    def place(self, memory: torch.Tensor, leaves: Sequence[Leaf]) -> Placed:
        """Returns the inputs as tensors over the shared buffer `memory` itself, without a copy.

        The judge therefore sees every write to an input. `leaves` describe the inputs: dtype, shape, strides, offset
        and storage.
        """

        def alone(start: int, end: int) -> torch.Tensor:
            return torch_cuda.as_cuda(torch.from_numpy(memory[start:end].numpy()))

        return Placed(input_memory.placed(leaves, alone), lambda: None)

    def fetch(self, tensors: Sequence[torch.Tensor], leaves: Sequence[Leaf], memory: torch.Tensor) -> None:
        """Copies each output tensor of a call into the shared buffer `memory`.

        `leaves` describe the tensors in order: dtype, shape, strides and offset in `memory`.
        """
        for leaf, tensor in zip(leaves, tensors, strict=True):
            leaf.view(memory).copy_(tensor)

    def has_free(self, size: int) -> bool:
        """Returns whether `size` bytes of the host's memory are free."""
        return psutil.virtual_memory().available >= size

    def timed(self, call: Callable[[], Any], *, hold: Hold | None, cold: bool) -> tuple[Any, Clocked]:
        """Makes the call and waits for its kernels. Returns the call's result, and a Clocked without a time.

        The emulated device has no clock, so the judge times the call by its own clock. `hold` and `cold` are not used.
        """
        result = call()
        self.synchronize()
        return result, Clocked(None)

    def state(self) -> dict[str, Any]:
        """Returns the machine's load average over the last minute, under the key `load`."""
        return {"load": os.getloadavg()[0]}

    def launches(self) -> int:
        """Returns the number of kernels that this process has launched so far."""
        return torch_cuda.launches() + triton_interpreter.launches()

    def skip_kernels(self, skip: bool) -> None:
        """If `skip`, later kernel launches of this process succeed and run nothing. Otherwise they run their kernel."""
        torch_cuda.skip_kernels(skip)
        triton_interpreter.skip_kernels(skip)

    def begin_dry_run(self) -> None:
        """Lets this process run the code of the host alone from now on, with device memory that holds no bytes."""
        torch_cuda.begin_dry_run()
        triton_interpreter.skip_kernels(True)

    def thin_grids(self) -> None:
        """Lets later launches of this process run a 64th of their blocks in x (`torch_cuda.thin_grids`)."""
        torch_cuda.thin_grids()

    def launched_threads(self) -> int:
        """Returns the number of threads of all launches so far in this process that were not refused."""
        return torch_cuda.launched_threads()

    def refused_launch(self, *, raised: bool) -> str:
        """Returns the message of the last launch that was refused, or an empty text (`torch_cuda.refused_launch`)."""
        return torch_cuda.refused_launch(raised=raised)

    def synchronize(self) -> None:
        """Raises RuntimeError if a kernel of this process has failed."""
        torch_cuda.synchronize()

    def environment(self) -> dict[str, Any]:
        """Returns facts about the machine that the emulator runs on."""
        return {"device": "CUDA emulated on the CPU", "threads": torch.get_num_threads(), **host_compiler.identity()}


class Strict(Emulated):
    """The emulated device with `--strict`: nvcc must also compile a source before the emulator runs it."""

    name = "cpu-strict"

    def build_key(self, sources: Sources, /) -> str:
        """Returns a key of the build cache that differs from Emulated's, because nvcc has also compiled the source."""
        return strict.key(super().build_key(sources))

    def build(self, sources: Sources, folder: Path, /) -> None:
        """Compiles the source with nvcc, and then builds the candidate's library for the CPU.

        Raises BuildFailed if nvcc or the C++ compiler rejects the source, UnsupportedConstruct if the source uses CUDA
        that the emulator cannot run, and NoCompiler if there is no nvcc or no C++ compiler.
        """
        strict.check(sources, folder)
        super().build(sources, folder)

    def prepare(self, tell: Tell = silent) -> None:
        """Builds the parts of the emulator that all candidates share.

        Raises BuildFailed if a part cannot be built, and NoCompiler if there is no nvcc or no C++ compiler.
        """
        strict.require()
        super().prepare(tell)
