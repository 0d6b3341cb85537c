"""The CUDA device's code on top of the emulated device, so that it runs without a GPU. Its times mean nothing."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch.autograd.profiler import profile

from cuda_on_cpu.compile.sources import Sources
from cuda_on_cpu.core.tell import Tell, silent
from cuda_on_cpu.emulator import extension, shared_parts, torch_cuda
from cuda_on_cpu.emulator.keys import extension_key
from kernel_harness.device import Clocked, Hold
from kernel_harness.device.cpu import Emulated
from kernel_harness.device.cuda import Cuda, times_on
from kernel_harness.device.l2_cache import L2Cache
from kernel_harness.ipc.shared_memory import SharedBuffer


class NoCache(L2Cache):
    """There is no L2 cache, so the buffer that empties it has one element."""

    def prepare(self) -> None:
        """Allocates the buffer."""
        self._buffer = torch.empty(1, device=self._device)

    def release_persisting(self) -> None:
        """Does nothing: there is no driver."""


class Rehearsal(Cuda):
    """Copies inputs and outputs, holds calls, times them by events and renews processes, as on a GPU."""

    def __init__(self) -> None:
        super().__init__(f"{__name__}:{type(self).__name__}")  # from which the fork server finds this class
        self.torch_device = "cuda:0"
        self._l2 = NoCache(self.torch_device)

    @property
    def name_in_workers(self) -> str:
        """The name from which the fork server finds this class."""
        return self.name

    @property
    def label(self) -> str:
        """The name of the folder of results."""
        return "rehearsal"

    def prepare(self, tell: Tell = silent) -> None:
        """Builds the emulator and installs it in this process. Raises NoCompiler."""
        shared_parts.prepare(tell=tell)
        self.prepare_worker()

    def prepare_full_headers(self) -> None:
        """Builds the precompiled form of torch's full headers. Raises NoCompiler, OSError."""
        shared_parts.full_prelude()

    def prepare_worker(self) -> None:
        """Installs the emulated CUDA device in this process's torch."""
        torch_cuda.install(shared_parts.runtime())

    def worker_variables(self) -> dict[str, str]:
        """None: there is no GPU to show."""
        return {}

    def hidden_from_workers(self) -> list[Path]:
        """None: there is no device file."""
        return []

    def share(self, size: int) -> SharedBuffer:
        """Memory of the host: there is no other."""
        return SharedBuffer(size)

    def _alone(self, memory: torch.Tensor, start: int, end: int) -> torch.Tensor:
        """The bytes from `start` to `end` of `memory`, which stays alive as long as they do."""
        mapped = (ctypes.c_uint8 * (end - start)).from_address(memory.data_ptr() + start)
        mapped.owner = memory
        return torch_cuda.as_cuda(torch.frombuffer(mapped, dtype=torch.uint8) if end > start else torch.empty(0))

    def build_key(self, sources: Sources, /) -> str:
        """The emulated device's key."""
        return extension_key(sources)

    def build(self, sources: Sources, folder: Path, /) -> None:
        """Compiles for this machine's CPU. Raises BuildFailed, UnsupportedConstruct, NoCompiler."""
        extension.build(sources, folder)

    def timed(self, call: Callable[[], Any], *, hold: Hold | None, cold: bool) -> tuple[Any, Clocked]:
        """Times a call as on a GPU. The emulated device does not sleep, so `exposed` is set to false."""
        result, clocked = super().timed(call, hold=hold, cold=cold)
        return result, replace(clocked, exposed=False)

    def kernels(self, call: Callable[[], Any]) -> list[tuple[str, float]]:
        """The kernels that the emulator launches, and torch's operators in place of their kernels.

        An operator has its time. A kernel of the emulator has a microsecond per thread, because its time is not known.
        """
        torch_cuda.profile_begin()
        with profile(use_kineto=True) as profiler, suppress(Exception):
            call()
        launched = [(each["kernel"], float(prod(each["grid"] + each["block"]))) for each in torch_cuda.profile_end()]
        operators = times_on(torch.autograd.DeviceType.CPU, profiler)
        # Named otherwise than the operator, whose name may occur in a candidate's text.
        return launched + [(f"{name}_kernel", time_us) for name, time_us in operators]

    def environment(self) -> dict[str, Any]:
        """The CUDA device's facts, under the emulated device's name, by which reports know that times are emulated."""
        return {**super().environment(), "device": Emulated().environment()["device"]}

    def ceilings(self) -> dict[str, float]:
        """Empty: the speed of an emulation means nothing."""
        return {}

    @contextmanager
    def exclusive(self, waiting: Callable[[], None]) -> Iterator[None]:
        """Does nothing: several runs may emulate at the same time."""
        yield
