"""A real CUDA device: events around a call whose launch gap is hidden, and an L2 cache emptied before it."""

from __future__ import annotations

import contextlib
import ctypes
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import linear_regression, median
from typing import Any

import torch
from filelock import FileLock, Timeout

from kernel_harness.build import bindings, compiler, nvcc
from kernel_harness.build.sources import Sources
from kernel_harness.device import Clocked, Placed, Steady, ceilings, nvml, pinned
from kernel_harness.device.peaks import Peaks, of
from kernel_harness.mask import mask_
from kernel_harness.tensors import Leaf

_FLUSHES = 2  # times the L2 size; a buffer of just its size leaves lines behind
_MOST_PINNED_BYTES = 1 << 30
_GRAPH_LAUNCHES = (1, 2, 4, 8, 16)
_GRAPH_REPLAYS = 20
_GRAPH_HOLD = 1 << 18  # cycles: longer than enqueuing a graph takes
_NOT_SUPPORTED = 801  # CUDA_ERROR_NOT_SUPPORTED


class Cuda:
    """`--device cuda` or `cuda:N`."""

    emulated = False
    in_place = False
    budget_s = 60.0
    half_width = 0.005
    # Two copies of one kernel, each in a process of its own, kept 0.1 to 0.2 us apart on an H200, at 5, 20 and 200 us
    # alike: benchmarks/measured has the samples.
    resolution_ms = 2e-4

    def __init__(self, name: str) -> None:
        self.name = name
        self.torch_device = name if ":" in name else "cuda:0"
        self._flush: torch.Tensor | None = None
        self._inputs: Any = None
        self._received: torch.Tensor | None = None
        self._inputs_pinned, self._outputs_pinned = contextlib.ExitStack(), contextlib.ExitStack()
        self._pinned_bytes = 0

    @property
    def label(self) -> str:
        """The folder results go to: the device's name, without what a path cannot hold."""
        name = torch.cuda.get_device_name(self.torch_device)
        return "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())

    def built(self, library: Path) -> None:
        """Nothing has to know of it."""

    def prepare(self) -> None:
        """Finds the toolkit, and builds what all candidates share. Raises NoCompiler where none serves."""
        compiler.path()
        nvcc.use_toolkit()
        bindings.library()

    def prepare_worker(self) -> None:
        """Nothing: a CUDA context does not survive a fork."""

    def open(self) -> None:
        """Starts the context on this device."""
        torch.cuda.set_device(self.torch_device)
        torch.cuda.synchronize()

    def build_key(self, sources: Sources, /) -> str:
        """By the sources, the toolkit and the device's compute capability."""
        return nvcc.key(sources, torch.cuda.get_device_capability(self.torch_device))

    def build(self, sources: Sources, mark: Callable[[str], str], folder: Path, /) -> None:
        """Compiles for this device. Raises BuildFailed."""
        nvcc.build(sources, mark, folder)

    def receive(self, memory: Any) -> None:
        """Copies the whole buffer to the device, ahead of the call that brings the key to it."""
        self._received = None
        self._received = self._copied(memory)
        torch.cuda.synchronize()

    def place(self, memory: Any, leaves: Sequence[Leaf], key: int | None = None) -> Placed:
        """A copy of the whole buffer on the device, canaries included; tensors are views of it."""
        received, self._received = self._received, None
        arena = self._copied(memory) if key is None or received is None else received
        if key is not None:
            mask_(arena.view(torch.int64), key)
        views = []
        for leaf in leaves:
            flat = arena[leaf.offset : leaf.offset + leaf.nbytes].view(leaf.dtype)
            views.append(flat.as_strided(leaf.shape, leaf.stride, flat.storage_offset()))
        torch.cuda.synchronize()
        return Placed(views, lambda: pinned.as_bytes(memory).copy_(arena))

    def _copied(self, memory: Any) -> torch.Tensor:
        """From memory that is pinned once."""
        host = pinned.as_bytes(memory)
        if memory is not self._inputs:
            self._inputs_pinned.close()
            self._inputs_pinned.enter_context(pinned.pinned(host, written=not memoryview(memory).readonly))
            self._inputs = memory
        return host.to(self.torch_device)

    def fetch(self, tensors: Sequence[torch.Tensor], leaves: Sequence[Leaf], memory: Any) -> None:
        """Copies into memory that is pinned once, as far as outputs reach."""
        size = max((leaf.offset + leaf.nbytes for leaf in leaves), default=0)
        if self._pinned_bytes < size <= _MOST_PINNED_BYTES:
            self._outputs_pinned.close()
            self._outputs_pinned.enter_context(pinned.pinned(pinned.as_bytes(memory)[:size], written=True))
            self._pinned_bytes = size
        elif size > _MOST_PINNED_BYTES:  # what is pinned in part cannot be copied to
            self._outputs_pinned.close()
            self._pinned_bytes = 0
        for leaf, tensor in zip(leaves, tensors, strict=True):
            leaf.view(memory).copy_(tensor)

    def timed(self, call: Callable[[], Any], *, hold: int, cold: bool) -> tuple[Any, Clocked]:
        """Milliseconds between events around the call, which is enqueued while the device sleeps."""
        if cold:
            self._empty_l2()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(hold)
        start.record()
        result = call()
        stop.record()
        # Had the sleep ended before all of the call was enqueued, the gap would be in its time.
        exposed = start.query()
        self.synchronize()
        return result, Clocked(start.elapsed_time(stop), exposed, torch.cuda.max_memory_allocated() - before)

    def steady(self, call: Callable[[], Any]) -> Steady | None:
        """From graphs of 1 to 16 calls: the slope is the interval, the intercept the overhead."""
        medians = []
        for count in _GRAPH_LAUNCHES:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(count):
                    call()
            medians.append(median(self.timed(graph.replay, hold=_GRAPH_HOLD, cold=False)[1].device_ms or 0.0
                                  for _ in range(_GRAPH_REPLAYS)))  # fmt: skip
        interval_ms, overhead_ms = linear_regression(_GRAPH_LAUNCHES, medians)
        return Steady(interval_ms, overhead_ms)

    @contextmanager
    def memory(self, *, poisoned: bool) -> Iterator[None]:
        """torch's deterministic mode fills `torch.empty` with NaN.

        Set as a mode for debugging: `torch.use_deterministic_algorithms` first imports all of inductor, which each
        process would spend seconds on.
        """
        before = torch.get_deterministic_debug_mode()
        if poisoned:
            torch.set_deterministic_debug_mode("warn")
            torch.utils.deterministic.fill_uninitialized_memory = True
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode(before)

    def peaks(self) -> Peaks | None:
        """The data sheet's, for the devices that are listed."""
        return of(torch.cuda.get_device_name(self.torch_device))

    def ceilings(self) -> dict[str, float]:
        """Measured once for this device, driver and torch."""
        return ceilings.measured(self.torch_device, {"uuid": self._uuid, "torch": torch.__version__, **nvml.driver()})

    def state(self) -> dict[str, Any]:
        """What NVML says now."""
        return nvml.state(self._uuid)

    @contextmanager
    def exclusive(self, waiting: Callable[[], None]) -> Iterator[None]:
        """A lock that every user of the machine can take, one per device."""
        lock = FileLock(Path(tempfile.gettempdir()) / f"kernel-harness-{self._uuid}.lock", mode=0o666)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            waiting()
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def launches(self) -> int | None:
        """Not known without a profiler."""
        return None

    def kernels(self, call: Callable[[], Any]) -> list[str]:
        """What a call launches, by name, whether or not it ends well."""
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            with contextlib.suppress(Exception):
                call()
            self.synchronize()
        return names_on(torch.autograd.DeviceType.CUDA, profiler)

    def synchronize(self) -> None:
        """Raises RuntimeError once a kernel has failed."""
        torch.cuda.synchronize()

    def environment(self) -> dict[str, Any]:
        """The GPU, its driver and clocks, and the toolkit."""
        properties = torch.cuda.get_device_properties(self.torch_device)
        return {
            "device": properties.name, "capability": [properties.major, properties.minor],
            "multiprocessors": properties.multi_processor_count, "memory_bytes": properties.total_memory,
            "l2_bytes": properties.L2_cache_size, "cuda": torch.version.cuda, "nvcc": nvcc.version(),
            **compiler.identity(), **nvml.driver(), **self.state(), "null_call_ms": self._null_call_ms(),
        }  # fmt: skip

    def _null_call_ms(self) -> float:
        """What the events see of a kernel that ends at once: it is in every time, and is never taken off."""
        with torch.cuda.device(self.torch_device):
            calls = [
                self.timed(lambda: torch.cuda._sleep(0), hold=_GRAPH_HOLD, cold=False) for _ in range(_GRAPH_REPLAYS)
            ]
        return median(clocked.device_ms or 0.0 for _, clocked in calls)

    @property
    def _uuid(self) -> str:
        return f"GPU-{torch.cuda.get_device_properties(self.torch_device).uuid}"

    def _empty_l2(self) -> None:
        """Writes and then reads twice the cache: a flush that only writes leaves dirty lines to write back."""
        if self._flush is None:
            size = torch.cuda.get_device_properties(self.torch_device).L2_cache_size
            self._flush = torch.empty(max(_FLUSHES * size, 1 << 20) // 4, dtype=torch.float32, device=self.torch_device)
        self._give_back_l2()
        self._flush.fill_(1.0)
        self._flush.sum()

    def _give_back_l2(self) -> None:
        """The lines that a kernel asked to be kept: they would survive a flush."""
        error = ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache()
        if error and error != _NOT_SUPPORTED:  # where none can be kept none is
            raise RuntimeError(f"CUDA error: the L2 cache's kept lines cannot be given back (driver error {error})")


def names_on(kind: torch.autograd.DeviceType, profiler: torch.profiler.profile) -> list[str]:
    """Of all that ran on one kind of device."""
    # Equal, not identical: each of these is an object of its own.
    return [event.name for event in profiler.events() or () if event.device_type == kind]
