"""The interface of a device: a part for the judge, a part for workers, and parts that only some devices have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from cuda_on_cpu.compile.candidate_file import CandidateFile
from cuda_on_cpu.compile.sources import Sources
from cuda_on_cpu.core.tell import Tell, silent
from kernel_harness.device.exports import Exports
from kernel_harness.device.hold import Hold
from kernel_harness.device.peaks import Peaks
from kernel_harness.device.policy import Policy
from kernel_harness.device.turn import Turn
from kernel_harness.ipc.gate import Gate
from kernel_harness.ipc.messages import Clocked, Steady
from kernel_harness.ipc.tensors import Leaf

ROOM = 8
"""A device is short of memory if less than ROOM times the bytes of one call's inputs or outputs are free."""
MOST_USED = 1 / 2
"""A candidate that fails may have lacked memory of the device if more than this share of the memory is in use."""


class SharedMemory(Protocol):
    """Memory that the judge owns and one worker maps. It is a CUDA device's if `on_device`, otherwise the host's.

    `bytes` is the memory as a flat uint8 tensor of at least `size` bytes. `descriptor` is a file descriptor, by which
    the worker maps the memory.
    """

    on_device: bool
    size: int
    descriptor: int
    bytes: torch.Tensor

    def close(self) -> None:
        """Closes the descriptor and unmaps the memory. Safe to call twice."""


@dataclass(frozen=True)
class Placed:
    """The inputs of a call as tensors on the device.

    After each call, timed or not, the judge looks for inputs that the candidate has changed. `write_back` copies the
    tensors to the memory that the judge reads, unless they are already there. A device that sanitizes does not copy
    them back.
    """

    tensors: list[torch.Tensor]
    write_back: Callable[[], object]


class JudgeDevice(Protocol):
    """The part of a device that runs in the judge. The judge never loads a candidate.

    Here and in WorkerDevice, a method that some device has no use for does nothing, or returns what stands for nothing,
    unless the device overrides it.
    """

    name: str  # `named` returns this device for this name, in every process
    torch_device: str  # the device's name in torch, for `Tensor.to`
    emulated: bool  # whether the times are those of an emulation, which predict nothing
    policy: Policy

    @property
    def name_in_workers(self) -> str:
        """Returns the name by which workers open this device: a GPU is the first one there."""
        return self.name

    @property
    def label(self) -> str:
        """Returns the name of the folder for results from this device, such as `nvidia-h200`."""

    def prepare(self, tell: Tell = silent) -> None:
        """Builds the parts that all candidates share. The judge calls it before any worker starts.

        `tell` is called with a text before each part is built, and not for parts that the build cache has.
        Raises BuildFailed if a part cannot be built, and EnvironmentLacking if this machine lacks something for it.
        """

    def worker_variables(self) -> dict[str, str]:
        """Returns the environment variables with which workers must start, such as the one that shows them one GPU.

        The judge calls it after `prepare`. The dict is empty for an emulated device.
        """
        return {}

    def hidden_from_workers(self) -> list[Path]:
        """Returns the device files that the wall leaves out for workers: those of other GPUs."""
        return []

    def prepare_full_headers(self) -> None:
        """Builds the precompiled form of torch's full headers. The judge calls it if a build failed without that form.

        Raises EnvironmentLacking if this machine lacks a compiler, and OSError if the build cache cannot be written.
        """
        return

    @property
    def shares(self) -> str:
        """Returns whose memory `share` returns: "device memory", or "host memory" and the reason if there is one."""

    def share(self, size: int) -> SharedMemory:
        """Returns new memory of at least `size` bytes that a worker can map.

        The memory is the device's if this machine can share such memory between processes, otherwise the host's. Raises
        torch.OutOfMemoryError if memory of the device can be shared, but too little of it is free.
        """

    def has_free(self, size: int) -> bool:
        """Returns whether `size` bytes of the memory in which the judge computes are free."""

    def used_share(self) -> float:
        """Returns the share of the device's memory that is in use, by any process, from 0 to 1.

        Memory that torch keeps in this process for later and does not use counts as free. For an emulated device,
        returns 0.
        """
        return 0.0

    def empty_cache(self) -> None:
        """Enqueues work that removes the inputs of a timed call from the device's L2 cache, and does not wait for it.

        The judge calls it after it has written the inputs to the device's memory, and before the worker's timed call.
        Does nothing for an emulated device.
        """
        return

    def cannot_share(self, reason: str) -> None:
        """Stores why a worker could not map memory of the device. Later calls of `share` return memory of the host."""
        return

    def build_key(self, sources: Sources, /) -> str:
        """Returns the build cache's key of the library that `sources` describe, built for this device."""

    def exclusive(self, waiting: Callable[[], None]) -> AbstractContextManager[Any]:
        """Returns a context within which no other run of this harness uses this device, if the device is a GPU.

        A GPU is torch's current device within the context. Calls `waiting` once if the context must wait for another
        run to end. For an emulated device, it does nothing.
        """
        return nullcontext()

    def environment(self) -> dict[str, Any]:
        """Returns facts about the device, its driver and its compilers, which are stored with each result."""

    def state(self) -> dict[str, Any]:
        """Returns facts that may explain an unusual time: clocks, temperature, other load.

        The judge reads the state between rounds.
        """

    def energy_j(self) -> float | None:
        """Returns the energy in joules that the device has used so far; None if the device does not count it."""
        return None

    def peaks(self) -> Peaks | None:
        """Returns the bandwidth and FLOP/s in the device's data sheet, or None if no data sheet is known."""
        return None

    def ceilings(self) -> dict[str, float]:
        """Returns the speeds that the device reaches: `bytes_per_s`, and `<format>_flops_per_s` by number format.

        Measures them if the build cache does not have them. For an emulated device, returns an empty dict.
        """
        return {}


class WorkerDevice(Protocol):
    """The part of a device that runs in the fork server and in worker processes."""

    torch_device: str

    def prepare_worker(self) -> None:
        """Makes, in the fork server, the preparations that workers inherit, such as an emulated CUDA device."""
        return

    def open(self) -> None:
        """Opens the device in a worker before the worker loads a candidate, for example creates its CUDA context.

        A CUDA context does not survive a fork, so the fork server must not use CUDA. It can prepare an emulated device.
        """
        return

    def build(self, sources: Sources, folder: Path, /) -> None:
        """Builds the candidate's library, a single .so file, in the empty folder `folder`.

        Raises BuildFailed if the library cannot be built, and NoCompiler if this machine lacks a tool for the build.
        The message of BuildFailed names places in the sources by their neutral names, such as `Sources.cuda_file`.
        """

    def built(self, library: Path) -> None:
        """Makes the preparations that the device needs before a worker loads `library`, a library of its candidate."""
        return

    def map(self, descriptor: int, size: int, *, on_device: bool) -> torch.Tensor:
        """Maps the judge's SharedMemory into this process. Returns the memory as a flat uint8 tensor of `size` bytes.

        `descriptor` is the file descriptor of the memory. If `on_device`, the memory is a CUDA device's, otherwise the
        host's. Raises CannotShare if memory of the device cannot be mapped.
        """

    def place(self, memory: torch.Tensor, leaves: Sequence[Leaf]) -> Placed:
        """Returns the inputs in the shared buffer `memory` as tensors on the device.

        `leaves` describe the tensors in order: dtype, shape, strides, and offset and storage in `memory`. Tensors of
        one storage there share a storage on the device, which has no bytes of other storages.
        """

    def fetch(self, tensors: Sequence[torch.Tensor], leaves: Sequence[Leaf], memory: torch.Tensor) -> None:
        """Copies the output tensors of a call to the shared buffer `memory`, or enqueues the copies on the device.

        `leaves` describe the tensors in order: dtype, shape, strides and offset in `memory`.
        """

    def release_unused(self) -> None:
        """Returns to the device the memory that torch caches and does not use, unless there is little of it."""
        return

    def has_free(self, size: int) -> bool:
        """Returns whether `size` bytes of the memory in which a call computes are free."""

    def reserve(self) -> None:
        """Reserves memory for a timed call: as much as the largest timed call so far needed."""
        return

    def timed(self, call: Callable[[], Any], *, hold: Hold | None, cold: bool) -> tuple[Any, Clocked]:
        """Makes a call and times it. Returns the call's result, and its time and memory.

        `hold` holds the device back until all kernels of the call are enqueued; None lets the device begin at once. If
        `cold`, this process empties the L2 cache right before the call. A device without a clock reports no time.
        Raises RuntimeError if a kernel has failed.
        """

    def steady(self, call: Callable[[], Any]) -> Steady | None:
        """Times the call when it is replayed as a CUDA graph. Returns None on a device without CUDA graphs.

        The graph holds one or more calls. Raises RuntimeError for a call that cannot be captured in a graph.
        """
        return None

    def memory(self, *, poisoned: bool, moved: bool = False) -> AbstractContextManager[None]:
        """Returns a context. If `poisoned`, device memory that is allocated within the context is filled with NaN.

        If `moved`, memory that a GPU allocates within it is not where earlier memory was. Memory of the emulated device
        is always filled with NaN and never moved.
        """
        return nullcontext()

    def synchronize(self) -> None:
        """Waits until the device has done all work of this process. Raises RuntimeError if any of it has failed."""


class Device(JudgeDevice, WorkerDevice, Protocol):
    """A complete device: the part that runs in the judge and the part that runs in workers."""


@runtime_checkable
class TakesTurns(Protocol):
    """A device on which the judge and a worker take turns: each can keep the other's work waiting."""

    def turn(self, gate: Gate) -> Turn:
        """Returns, in the judge, what keeps other processes off the device around the calls that begin at `gate`.

        Raises CannotShare if this machine's device cannot do so.
        """

    def hold_at(self, gate: Gate, enqueued: Callable[[], None]) -> Hold:
        """Returns, in a worker, a hold of the current stream that ends when the judge opens `gate`.

        `enqueued` is called when the call is enqueued. Raises CannotShare if this machine's device cannot wait for the
        gate.
        """

    def exports(self) -> Exports:
        """Returns, in a worker, the regions of its device memory that the judge can map."""

    def map_regions(self, descriptors: Sequence[int], sizes: Sequence[int]) -> torch.Tensor:
        """Maps pieces of a worker's device memory into the judge. Returns them as one flat uint8 tensor.

        Raises CannotShare if the pieces cannot be mapped.
        """


@runtime_checkable
class CountsLaunches(Protocol):
    """A device that counts the kernels launched on it."""

    def launches(self) -> int:
        """Returns the number of kernels that this process has launched so far."""


@runtime_checkable
class TimesKernels(Protocol):
    """A device with a profiler that finds the names and times of the kernels that a call launches."""

    def kernels(self, call: Callable[[], Any]) -> list[tuple[str, float]]:
        """Makes the call, and returns the names of the kernels that it launches, each with its time in microseconds.

        Copies and fills of device memory count as kernels. An exception that the call raises is ignored. Raises
        RuntimeError if a kernel has failed.
        """


@runtime_checkable
class SkipsKernels(Protocol):
    """A device that can skip a candidate's kernels, which shows what the other code of a call does without them."""

    def skip_kernels(self, skip: bool) -> None:
        """If `skip`, later kernel launches of this process succeed and run nothing. Otherwise they run their kernel."""


@runtime_checkable
class RunsDry(Protocol):
    """A device that can run a candidate's host code alone, at sizes for which there is neither memory nor time here."""

    def begin_dry_run(self) -> None:
        """Lets this process run the code of the host alone from now on. Device memory then holds no bytes.

        Launches are checked against the device's limits and run nothing. Code that needs a value from device memory
        ends the process.
        """

    def thin_grids(self) -> None:
        """Lets later launches of this process run a 64th of their blocks in x, as if they had asked for these alone."""

    def launched_threads(self) -> int:
        """Returns the number of threads of all launches so far in this process that were not refused."""

    def refused_launch(self, *, raised: bool) -> str:
        """Returns the message of the last launch that the device refused; an empty text if there is none.

        If not `raised`, returns an empty text also if the candidate has taken the error of that launch.
        """


@runtime_checkable
class Profiles(Protocol):
    """A device that counts the memory accesses and barriers of kernels, for the command `profile`."""

    def begin_profile(self) -> None:
        """Starts to count the memory accesses, basic blocks and barriers of kernels."""

    def end_profile(self) -> dict[str, list[dict[str, Any]]]:
        """Stops counting. Returns, under `launches`, one dict for each launch since `begin_profile`, in order.

        Under `compiled` is a dict for each Triton kernel of this process and its specialization.

        The dict of a launch holds its sizes, the numbers of bytes accessed and of barriers, and what the instructions
        and basic blocks of some blocks of threads did.
        """


@runtime_checkable
class Sanitizes(Protocol):
    """A device that itself checks each memory access of kernels, for the command `sanitize`.

    Only an emulated device does so. On a CUDA device, `sanitize` runs the worker under the tool compute-sanitizer.
    """

    def begin_sanitizing(self, file: CandidateFile) -> None:
        """Switches the sanitizer on, in a worker. `file` is the candidate's file, which reports refer to."""

    def sanitize_next_call(self, order: int, *, checks: bool) -> None:
        """Prepares the sanitizer for the next call, whose memory accesses are checked if `checks` is true.

        `order` is the order in which the threads of a kernel run: 0 is forward, 1 is reverse, and any other number is
        the seed of a random order.
        """

    def findings(self, blame: tuple[int, ...] | None) -> list[dict[str, Any]]:
        """Returns the faults that the sanitizer found in the last call, such as accesses out of bounds.

        If `blame` is given, the sanitizer also reports that one element of an output depends on the order of the
        threads. `blame` then holds the index of the output and the row-major index of the element.
        """
