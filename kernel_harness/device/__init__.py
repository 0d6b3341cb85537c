"""What differs between running on a GPU and emulating one. The worker and the judge each use their half."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from kernel_harness.build.sources import Sources
from kernel_harness.device.peaks import Peaks
from kernel_harness.tensors import Leaf


@dataclass(frozen=True)
class Placed:
    """Inputs on the device, and how to show the judge what became of them."""

    tensors: list[torch.Tensor]
    write_back: Callable[[], None]


class Device(Protocol):
    """A device under test. `build` compiles a candidate for it."""

    name: str
    torch_device: str
    emulated: bool
    budget_s: float  # of timing, by default
    half_width: float  # of a speedup's interval, relative: precise enough to stop

    @property
    def label(self) -> str:
        """The folder results go to."""

    def build(self, sources: Sources, mark: Callable[[str], str], /) -> tuple[Path, bool]:
        """The candidate's library, and whether it was cached. Raises BuildFailed."""

    def prepare(self) -> None:
        """Builds what all candidates share. In the judge, before any worker."""

    def prepare_worker(self) -> None:
        """What can be done once for all workers, before they are forked."""

    def open(self) -> None:
        """What each worker does for itself, before its candidate."""

    def place(self, memory: Any, leaves: Sequence[Leaf]) -> Placed:
        """The tensors of a shared buffer, on the device."""

    def timed(self, call: Callable[[], Any], *, cold: bool) -> tuple[Any, float | None]:
        """The call's result and the device's own milliseconds for it, where the device has a clock."""

    def memory(self, *, poisoned: bool) -> AbstractContextManager[None]:
        """Within it, uninitialised memory reads as NaN if asked."""

    def peaks(self) -> Peaks | None:
        """What the device can do at most; None where that is not known."""

    def launches(self) -> int | None:
        """Kernels launched so far in this process, where that can be told."""

    def synchronize(self) -> None:
        """Raises RuntimeError once anything on the device has failed."""

    def environment(self) -> dict[str, Any]:
        """Facts recorded with each result."""


def named(name: str) -> Device:
    """The device for `cpu`, `cuda` or `cuda:N`, or `cpu-sanitized`, where no time is taken."""
    if name == "cpu":
        from kernel_harness.device.cpu import Emulated

        return Emulated()
    if name == "cpu-sanitized":
        from kernel_harness.device.sanitized import Sanitized

        return Sanitized()
    from kernel_harness.device.cuda import Cuda

    return Cuda(name)
