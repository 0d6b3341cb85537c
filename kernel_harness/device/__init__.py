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


@dataclass(frozen=True)
class Clocked:
    """One timed call as the worker tells it: nothing that a verdict rests on alone.

    `device_ms` is None where the device has no clock of its own. `exposed`: the device began before the call was
    wholly enqueued, so that a launch gap may be in its time. `peak_bytes` of device memory beyond the inputs.
    """

    device_ms: float | None
    exposed: bool = False
    peak_bytes: int | None = None


@dataclass(frozen=True)
class Steady:
    """A call replayed many times as a graph: milliseconds from one to the next, and what a replay costs beside."""

    interval_ms: float
    overhead_ms: float


class Device(Protocol):
    """A device under test. `build` compiles a candidate for it, in a worker."""

    name: str
    torch_device: str
    emulated: bool
    in_place: bool  # a call works on the shared buffer itself, and may write there
    budget_s: float  # of timing, by default
    half_width: float  # of a speedup's interval, relative: precise enough to stop
    resolution_ms: float  # what two processes that run the same kernel differ by, however long they are timed

    @property
    def label(self) -> str:
        """The folder results go to."""

    def build_key(self, sources: Sources, /) -> str:
        """What the candidate's library for this device is found by."""

    def build(self, sources: Sources, mark: Callable[[str], str], folder: Path, /) -> None:
        """Puts the candidate's library, a single .so, into a folder. Raises BuildFailed."""

    def built(self, library: Path) -> None:
        """A library of the candidate's is about to be loaded into this process."""

    def prepare(self) -> None:
        """Builds what all candidates share. In the judge, before any worker."""

    def prepare_worker(self) -> None:
        """What can be done once for all workers, before they are forked."""

    def open(self) -> None:
        """What each worker does for itself, before its candidate."""

    def receive(self, memory: Any) -> None:
        """Takes a masked buffer in, ahead of the call that brings the key. Nobody asks it of a device in place."""

    def place(self, memory: Any, leaves: Sequence[Leaf], key: int | None = None) -> Placed:
        """The tensors of a shared buffer, on the device. With a key it lies masked, which no device in place sees."""

    def fetch(self, tensors: Sequence[torch.Tensor], leaves: Sequence[Leaf], memory: Any) -> None:
        """Copies what a call returned to where its leaves lie in `memory`."""

    def timed(self, call: Callable[[], Any], *, hold: int, cold: bool) -> tuple[Any, Clocked]:
        """The call's result and its time, begun after `hold` cycles in which the device waits for nothing.

        Cold: with nothing of the inputs in the L2 cache. Where the device has no clock, the call is only made.
        """

    def steady(self, call: Callable[[], Any]) -> Steady | None:
        """The call as a graph; None where there are none. Raises RuntimeError for a call that cannot be captured."""

    def memory(self, *, poisoned: bool) -> AbstractContextManager[None]:
        """Within it, uninitialised memory reads as NaN if asked."""

    def peaks(self) -> Peaks | None:
        """What the device can do at most; None where that is not known."""

    def ceilings(self) -> dict[str, float]:
        """What the device reaches, measured: `bytes_per_s` and `<format>_flops_per_s`; empty where nobody asks."""

    def state(self) -> dict[str, Any]:
        """What may explain a strange time, read between rounds: clocks, heat, other load."""

    def exclusive(self, waiting: Callable[[], None]) -> AbstractContextManager[Any]:
        """Within it, no other run of this harness uses the device. `waiting` is called if it must wait its turn."""

    def launches(self) -> int | None:
        """Kernels launched so far in this process, where that can be told."""

    def synchronize(self) -> None:
        """Raises RuntimeError once anything on the device has failed."""

    def environment(self) -> dict[str, Any]:
        """Facts recorded with each result."""


def named(name: str) -> Device:
    """The device for `cpu`, `cpu-strict`, `cuda` or `cuda:N`; with `-sanitized` or `-profiled` behind, as those verbs
    use it, taking no time; `rehearsal`.
    """
    if name in ("cpu", "cpu-strict"):
        from kernel_harness.device.cpu import Emulated, Strict

        return Strict() if name == "cpu-strict" else Emulated()
    if name == "cpu-profiled":
        from kernel_harness.device.profiled import Profiled

        return Profiled()
    if name == "rehearsal":
        from kernel_harness.device.rehearsal import Rehearsal

        return Rehearsal()
    if name.endswith("-sanitized"):
        from kernel_harness.device.sanitized import Sanitized, SanitizedCuda

        return Sanitized() if name.startswith("cpu") else SanitizedCuda(name.removesuffix("-sanitized"))
    from kernel_harness.device.cuda import Cuda

    return Cuda(name)
