"""A real CUDA device, which times a call with CUDA events.

The device waits while the call is enqueued, so that the launch latency is not part of the time. Timed calls start with
a cold L2 cache. The judge empties the L2 cache right after it has written the inputs (`empty_cache`), while no work of
a worker runs on the device. So a candidate cannot use this time for untimed work on the inputs. If the inputs cross the
host's memory, the worker empties the L2 cache.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import linear_regression, median
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch.autograd.profiler import profile

from cuda_on_cpu.compile import bindings, host_compiler
from cuda_on_cpu.compile.sources import Sources
from cuda_on_cpu.core.tell import Tell, silent
from kernel_harness.compile import nvcc
from kernel_harness.device import ceilings, device_memory, nvml, one_gpu
from kernel_harness.device.exports import Exports
from kernel_harness.device.hold import AtGate, Hold, Sleep
from kernel_harness.device.l2_cache import L2Cache
from kernel_harness.device.peaks import Peaks, of
from kernel_harness.device.policy import ON_GPU
from kernel_harness.device.protocol import Device, Placed, SharedMemory
from kernel_harness.device.turn import Turn
from kernel_harness.ipc import input_memory
from kernel_harness.ipc.gate import Gate
from kernel_harness.ipc.messages import Clocked, Steady
from kernel_harness.ipc.shared_memory import SharedBuffer, map_shared
from kernel_harness.ipc.tensors import Leaf

_GRAPH_LAUNCHES = (1, 2, 4, 8, 16)
_GRAPH_REPLAYS = 20
_GRAPH_HOLD = Sleep(1 << 18)  # enqueuing a graph takes less time
# Memory that is not worth the time to give it back and to allocate it again: at most _LITTLE_BYTES and at most a share
# of what is free, and always _VERY_LITTLE_BYTES.
_LITTLE_BYTES = 1 << 31
_LITTLE_SHARE = 1 / 8
_VERY_LITTLE_BYTES = 1 << 26


class Cuda(Device):
    """A CUDA device, which `--device cuda` or `--device cuda:N` selects."""

    emulated = False
    policy = ON_GPU

    def __init__(self, name: str) -> None:
        self.name = name
        self.torch_device = name if ":" in name else "cuda:0"
        self._l2 = L2Cache(self.torch_device)
        self._peak_bytes = 0  # of the timed calls so far

    @property
    def name_in_workers(self) -> str:
        """Returns the name of the first GPU: a worker sees no other."""
        return "cuda"

    @property
    def label(self) -> str:
        """Returns the name of the folder for results from this device, made from its name, such as `nvidia-h200`."""
        name = torch.cuda.get_device_name(self.torch_device)
        return "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())

    def prepare(self, tell: Tell = silent) -> None:
        """Selects the CUDA toolkit, and builds the library that makes C++ functions of candidates callable from Python.

        Also uses the device, because the first use creates some of the device's files in /dev, which workers need.
        Raises NoCompiler if this machine has no C++ compiler or no fitting CUDA toolkit, and BuildFailed if the library
        cannot be built.
        """
        # cuBLAS keeps the workspace that it gets in its first call. Later that could be a part of a large block that
        # torch caches, and the whole block would never be free again.
        torch.mm(*torch.ones(2, 1, 1, device=self.torch_device))
        torch.cuda.synchronize(self.torch_device)
        host_compiler.path()
        nvcc.use_toolkit()
        bindings.library(tell)

    def worker_variables(self) -> dict[str, str]:
        """Returns the variable that shows a worker this GPU alone, as its device 0; none if torch sees no GPU."""
        if not torch.cuda.is_available():
            return {}  # the worker says why it cannot open the device
        found = torch.cuda.get_device_properties(self.torch_device)
        number = torch.device(self.torch_device).index
        own = os.environ.get(one_gpu.VISIBLE)
        return {one_gpu.VISIBLE: one_gpu.shown_alone(number, found.name, str(found.uuid), own)}

    def hidden_from_workers(self) -> list[Path]:
        """Returns the device files of the machine's other GPUs, as far as it can be found out which file is whose."""
        found = torch.cuda.get_device_properties(self.torch_device)
        at = one_gpu.address(found.pci_domain_id, found.pci_bus_id, found.pci_device_id)
        return one_gpu.files_of_others(one_gpu.minor_number(at))

    def open(self) -> None:
        """Creates the CUDA context of this process, a worker, on the device."""
        torch.cuda.set_device(self.torch_device)
        # NVML, which torch asks for the number of devices, may find none behind the wall. The driver finds them.
        os.environ.pop("PYTORCH_NVML_BASED_CUDA_CHECK", None)
        if torch.cuda.device_count() == 0:
            torch.cuda._cached_device_count = torch._C._cuda_getDeviceCount()
        torch.cuda.synchronize()

    def build_key(self, sources: Sources, /) -> str:
        """Returns the build cache's key of the candidate's library: a hash of sources, tools and compute capability."""
        return nvcc.key(sources, torch.cuda.get_device_capability(self.torch_device))

    def build(self, sources: Sources, folder: Path, /) -> None:
        """Compiles the candidate's library for this device, into the empty folder `folder`.

        Raises BuildFailed if the library cannot be built, and NoCompiler if the CUDA toolkit lacks a header that a
        source includes.
        """
        nvcc.build(sources, folder)

    def share(self, size: int) -> SharedMemory:
        """Returns new memory of at least `size` bytes that a worker can map.

        The memory is this device's if this machine can share such memory between processes, otherwise the host's.
        Raises torch.OutOfMemoryError if memory of this device can be shared, but too little of it is free.
        """
        if not device_memory.why_not(self.torch_device):
            try:
                return device_memory.DeviceBuffer(size, self.torch_device)
            except device_memory.CannotShare as error:
                self.cannot_share(str(error))
        return SharedBuffer(size)

    def used_share(self) -> float:
        """Returns the share of the device's memory that is in use, by any process, from 0 to 1."""
        _, total = torch.cuda.mem_get_info(self.torch_device)
        return float(1 - device_memory.usable_bytes(self.torch_device) / total)

    def empty_cache(self) -> None:
        """Enqueues the work that replaces the contents of the L2 cache."""
        self._l2.prepare()
        self._l2.empty()

    def cannot_share(self, reason: str) -> None:
        """Stores why memory of this device cannot be shared with workers. `share` then returns memory of the host."""
        device_memory.refuse(self.torch_device, reason)

    @property
    def shares(self) -> str:
        """Returns whose memory is shared with workers: "device memory", or "host memory" and the reason."""
        why = device_memory.why_not(self.torch_device)
        return f"host memory: {why}" if why else "device memory"

    def map(self, descriptor: int, size: int, *, on_device: bool) -> torch.Tensor:
        """Maps shared memory of the judge into this process. Returns the memory as a flat uint8 tensor of `size` bytes.

        `descriptor` is the file descriptor of the memory. If `on_device`, it is memory of this device, otherwise of the
        host. Raises CannotShare if memory of this device cannot be mapped.
        """
        if on_device:
            return device_memory.map_device_memory([descriptor], [size], self.torch_device)
        return map_shared(descriptor, size)

    def place(self, memory: torch.Tensor, leaves: Sequence[Leaf]) -> Placed:
        """Returns the inputs as tensors over the shared buffer `memory` itself, or over one copy of it on the device.

        `leaves` describe the inputs: dtype, shape, strides, offset and storage. A copy is needed only for memory of the
        host. It includes the known bytes around each input, in which the judge finds writes out of bounds.
        """
        there = memory if memory.is_cuda else memory.to(self.torch_device)
        inputs = input_memory.placed(leaves, lambda start, end: self._alone(there, start, end))
        return Placed(inputs, lambda: None if there is memory else memory.copy_(there))

    def _alone(self, memory: torch.Tensor, start: int, end: int) -> torch.Tensor:
        """Returns the bytes of `memory` from `start` to `end` as a tensor that is all of a storage."""
        return device_memory.alone(memory, start, end)

    def fetch(self, tensors: Sequence[torch.Tensor], leaves: Sequence[Leaf], memory: torch.Tensor) -> None:
        """Enqueues the copies of a call's output tensors to the shared buffer `memory`.

        `leaves` describe the tensors in order: dtype, shape, strides and offset in `memory`.
        """
        for leaf, tensor in zip(leaves, tensors, strict=True):
            leaf.view(memory).copy_(tensor, non_blocking=True)

    def release_unused(self) -> None:
        """Returns to the driver the memory that torch caches and does not use, unless there is little of it.

        Memory of up to _VERY_LITTLE_BYTES is always little. Other memory is little if it exceeds neither _LITTLE_BYTES
        nor _LITTLE_SHARE of the device's free memory.
        """
        unused = device_memory.unused_bytes(self.torch_device)
        if unused <= _VERY_LITTLE_BYTES:
            return
        if unused > _LITTLE_BYTES or unused > _LITTLE_SHARE * torch.cuda.mem_get_info(self.torch_device)[0]:
            torch.cuda.empty_cache()

    def has_free(self, size: int) -> bool:
        """Returns whether `size` bytes of the device's memory are free, or kept by torch without use."""
        return device_memory.usable_bytes(self.torch_device) >= size

    def turn(self, gate: Gate) -> Turn:
        """Returns, in the judge, what keeps other processes off this device around the calls that begin at `gate`.

        Raises CannotShare if this machine's device cannot do so.
        """
        self._l2.prepare()  # its first use would wait for a blocking kernel
        torch.cuda.synchronize(self.torch_device)
        return Turn(gate, self.torch_device)

    def hold_at(self, gate: Gate, enqueued: Callable[[], None]) -> Hold:
        """Returns, in a worker, a hold of this device's current stream that ends when the judge opens `gate`.

        `enqueued` is called when the call is enqueued. Raises CannotShare if this machine's device cannot wait for the
        gate.
        """
        return AtGate(gate, self.torch_device, enqueued)

    def exports(self) -> Exports:
        """Returns, in a worker, the regions of its device memory that the judge can map."""
        return Exports(self.torch_device)

    def map_regions(self, descriptors: Sequence[int], sizes: Sequence[int]) -> torch.Tensor:
        """Maps pieces of a worker's device memory into the judge. Returns them as one flat uint8 tensor.

        Raises CannotShare if the pieces cannot be mapped.
        """
        return device_memory.map_device_memory(descriptors, sizes, self.torch_device)

    def reserve(self) -> None:
        """Has torch reserve the memory that the largest timed call so far needed, as far as the device has it."""
        device_memory.reserve(self._peak_bytes, self.torch_device)

    def timed(self, call: Callable[[], Any], *, hold: Hold | None, cold: bool) -> tuple[Any, Clocked]:
        """Makes the call between two CUDA events. Returns the call's result, and its time and memory.

        `hold` holds the device back while the call is enqueued; None lets the device begin at once. If `cold`, the L2
        cache is emptied after the hold, right before the call. Raises RuntimeError if a kernel has failed.
        """
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        if cold:
            self._l2.release_persisting()
            self._l2.prepare()
        before = device_memory.allocated_bytes(self.torch_device)
        torch.cuda.reset_peak_memory_stats()
        if hold is not None:
            hold.begin()
        if cold:
            self._l2.empty()
        if hold is None:
            # The device comes back from the judge's process only for work. It would come back within the call, and
            # hide launches. And the call may work in a stream that does not wait for this one.
            torch.cuda._sleep(0)
            self.synchronize()
        start.record()
        result = call()
        stop.record()
        # If the hold ended before the whole call was enqueued, the measured time contains launch latency.
        exposed = hold is not None and start.query()
        if hold is not None:
            hold.end()
        self.synchronize()
        peak_bytes = device_memory.allocated_bytes(self.torch_device, peak=True) - before
        self._peak_bytes = max(self._peak_bytes, peak_bytes)
        return result, Clocked(start.elapsed_time(stop), exposed, peak_bytes)

    def steady(self, call: Callable[[], Any]) -> Steady | None:
        """Times CUDA graphs of 1 to 16 calls. Returns the time per call and the overhead of a replay, as a Steady.

        Both come from a line that is fitted to the time as a function of the number of calls: its slope is the interval
        between two calls, and its intercept is the overhead. Raises RuntimeError if the call cannot be captured.
        """
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
    def memory(self, *, poisoned: bool, moved: bool = False) -> Iterator[None]:
        """Returns a context. If `poisoned`, torch fills memory that it allocates in the context with NaN.

        If `moved`, torch's unused memory is returned to the driver before. Within the context, another piece of memory,
        of random size, is where the driver would else have put the new memory. Memory of integers is filled with their
        largest value. The fill is a part of torch's deterministic mode. `torch.set_deterministic_debug_mode` switches
        this mode on. `torch.use_deterministic_algorithms` would first import all of inductor, which takes seconds in
        each process.
        """
        before = torch.get_deterministic_debug_mode()
        if poisoned:
            torch.set_deterministic_debug_mode("warn")
            torch.utils.deterministic.fill_uninitialized_memory = True
        try:
            with device_memory.moved(self.torch_device) if moved else nullcontext():
                yield
        finally:
            torch.set_deterministic_debug_mode(before)

    def peaks(self) -> Peaks | None:
        """Returns the bandwidth and FLOP/s in the device's data sheet, or None if no data sheet is known."""
        return of(torch.cuda.get_device_name(self.torch_device))

    def ceilings(self) -> dict[str, float]:
        """Returns the bandwidth and FLOP/s that the device reaches (`ceilings.measured`).

        They are measured once per device, driver and version of torch, and then read from the build cache.
        """
        return ceilings.measured(self.torch_device, {"uuid": self._uuid, "torch": torch.__version__, **nvml.driver()})

    def state(self) -> dict[str, Any]:
        """Returns the present clocks, temperature and load of the device, or an empty dict if NVML is missing."""
        return nvml.state(self._uuid)

    def energy_j(self) -> float | None:
        """Returns the energy in joules that the device has used so far; None if NVML cannot tell."""
        return nvml.energy_j(self._uuid)

    @contextmanager
    def exclusive(self, waiting: Callable[[], None]) -> Iterator[None]:
        """Holds the lock file of this device within the context, so that other runs of the harness wait.

        This device is torch's current one within the context, because a problem may ask for the device `cuda`. Calls
        `waiting` once if another run holds the lock. Every user of the machine can take the lock.
        """
        lock = FileLock(Path(tempfile.gettempdir()) / f"kernel-harness-{self._uuid}.lock", mode=0o666)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            waiting()
            lock.acquire()
        try:
            with torch.cuda.device(self.torch_device):
                yield
        finally:
            lock.release()

    def kernels(self, call: Callable[[], Any]) -> list[tuple[str, float]]:
        """Makes the call, and returns the names of the kernels that it launches, each with its time in microseconds.

        Copies and fills of device memory count as kernels. An exception that the call raises is ignored. Raises
        RuntimeError if a kernel has failed.
        """
        # torch.profiler.profile does the same, but first imports all of inductor, which takes seconds in each process.
        with profile(use_cpu=False, use_device="cuda", use_kineto=True) as profiler:
            with contextlib.suppress(Exception):
                call()
            self.synchronize()
        return times_on(torch.autograd.DeviceType.CUDA, profiler)

    def synchronize(self) -> None:
        """Waits until the device has done all work of this process. Raises RuntimeError if a kernel has failed."""
        torch.cuda.synchronize()

    def environment(self) -> dict[str, Any]:
        """Returns facts about the GPU, its driver and clocks, and the toolkit, and the time of an empty kernel."""
        properties = torch.cuda.get_device_properties(self.torch_device)
        return {
            "device": properties.name, "capability": [properties.major, properties.minor],
            "multiprocessors": properties.multi_processor_count, "memory_bytes": properties.total_memory,
            "l2_bytes": properties.L2_cache_size, "cuda": torch.version.cuda, "nvcc": nvcc.version(),
            **host_compiler.identity(), **nvml.driver(), **self.state(), "null_call_ms": self._null_call_ms(),
        }  # fmt: skip

    def _null_call_ms(self) -> float:
        """Returns the time in milliseconds that CUDA events report for a kernel that ends at once.

        The time of every call contains this overhead, which is never subtracted.
        """
        with torch.cuda.device(self.torch_device):
            calls = [
                self.timed(lambda: torch.cuda._sleep(0), hold=_GRAPH_HOLD, cold=False) for _ in range(_GRAPH_REPLAYS)
            ]
        return median(clocked.device_ms or 0.0 for _, clocked in calls)

    @property
    def _uuid(self) -> str:
        return f"GPU-{torch.cuda.get_device_properties(self.torch_device).uuid}"


def times_on(kind: torch.autograd.DeviceType, profiler: profile) -> list[tuple[str, float]]:
    """Returns names and times, in microseconds, of the recorded events that ran on a device of type `kind`.

    An event is a kernel, for example. A range that the profiled code has named itself, with `record_function`, is left
    out, because its time is the time of the kernels in it.
    """
    # `==` and not `is`: the profiler makes a new object for each event.
    events = [event for event in profiler.function_events or () if event.device_type == kind]
    return [(event.name, event.time_range.elapsed_us()) for event in events if not event.is_user_annotation]
