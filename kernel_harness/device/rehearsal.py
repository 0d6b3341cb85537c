"""CUDA's own code over the emulated device: what CI has in a GPU's place. It says nothing of times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from kernel_harness.build.sources import Sources
from kernel_harness.device import Clocked
from kernel_harness.device.cpu import Emulated
from kernel_harness.device.cuda import Cuda, names_on
from kernel_harness.emulator import compile as emulator
from kernel_harness.emulator import torch_cuda


class Rehearsal(Cuda):
    """Inputs are masked and copied, calls held and timed by events, processes renewed, as on a GPU: for tests."""

    def __init__(self) -> None:
        super().__init__("rehearsal")

    @property
    def label(self) -> str:
        """The folder results go to."""
        return self.name

    def prepare(self) -> None:
        """Builds the emulator, and gives this process its device. Raises NoCompiler."""
        emulator.prepare()
        self.prepare_worker()

    def prepare_worker(self) -> None:
        """Turns the process into one with a CUDA device."""
        torch_cuda.install(emulator.runtime())

    def open(self) -> None:
        """As on a GPU, but that there is no cache to empty."""
        super().open()
        self._flush = torch.empty(1, device=self.torch_device)

    def build_key(self, sources: Sources, /) -> str:
        """As for the emulated device."""
        return emulator.key(sources)

    def build(self, sources: Sources, mark: Callable[[str], str], folder: Path, /) -> None:
        """Compiles for this processor. Raises BuildFailed, UnsupportedConstruct, NoCompiler."""
        emulator.build(sources, mark, folder)

    def timed(self, call: Callable[[], Any], *, hold: int, cold: bool) -> tuple[Any, Clocked]:
        """The emulated device is done with its sleep before the call: that it was not waiting is not told."""
        result, clocked = super().timed(call, hold=hold, cold=cold)
        return result, replace(clocked, exposed=False)

    def kernels(self, call: Callable[[], Any]) -> list[str]:
        """What the emulator launches, and torch's operators in place of their kernels."""
        torch_cuda.profile_begin()
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities) as profiler, suppress(Exception):
            call()
        launched = [launch["kernel"] for launch in torch_cuda.profile_end()]
        # A kernel of torch's is not named as the operator is, which a candidate's text may name.
        return launched + [f"{name}_kernel" for name in names_on(torch.autograd.DeviceType.CPU, profiler)]

    def environment(self) -> dict[str, Any]:
        """Leaderboards know by the device's name that its times are an emulation's."""
        return {**super().environment(), "device": Emulated().environment()["device"]}

    def ceilings(self) -> dict[str, float]:
        """Nothing that an emulation reaches says anything."""
        return {}

    @contextmanager
    def exclusive(self, waiting: Callable[[], None]) -> Iterator[None]:
        """An emulation is nobody's alone."""
        yield

    def _give_back_l2(self) -> None:
        """There is no driver to ask."""
