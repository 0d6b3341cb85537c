"""A real CUDA device: events around a call whose launch gap is hidden, and an L2 cache emptied before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from kernel_harness.build import compiler, nvcc
from kernel_harness.build.sources import Sources
from kernel_harness.device import Placed
from kernel_harness.device.peaks import Peaks, of
from kernel_harness.tensors import Leaf

_FLUSHES = 2  # times the L2 size; a buffer of just its size leaves lines behind
_LONGEST_SLEEP_CYCLES = 100_000_000


class Cuda:
    """`--device cuda` or `cuda:N`."""

    emulated = False
    budget_s = 60.0
    half_width = 0.005

    def __init__(self, name: str) -> None:
        self.name = name
        self.torch_device = name if ":" in name else "cuda:0"
        self._sleep_cycles = 1_000_000
        self._flush: torch.Tensor | None = None

    @property
    def label(self) -> str:
        """The folder results go to: the device's name, without what a path cannot hold."""
        name = torch.cuda.get_device_name(self.torch_device)
        return "-".join("".join(c if c.isalnum() else " " for c in name.lower()).split())

    def prepare(self) -> None:
        """Finds the toolkit. Raises NoCompiler where there is none that serves."""
        compiler.path()
        nvcc.use_toolkit()

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

    def place(self, memory: Any, leaves: Sequence[Leaf]) -> Placed:
        """A copy of the whole buffer on the device, canaries included; tensors are views of it."""
        host = torch.frombuffer(memory, dtype=torch.uint8)
        arena = host.to(self.torch_device)
        views = []
        for leaf in leaves:
            flat = arena[leaf.offset : leaf.offset + leaf.nbytes].view(leaf.dtype)
            views.append(flat.as_strided(leaf.shape, leaf.stride, flat.storage_offset()))
        torch.cuda.synchronize()
        return Placed(views, lambda: host.copy_(arena))

    def timed(self, call: Callable[[], Any], *, cold: bool) -> tuple[Any, float | None]:
        """The result and the milliseconds between events around the call, launched while the device sleeps."""
        if not cold:
            result = call()
            self.synchronize()
            return result, None
        self._empty_l2()
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(self._sleep_cycles)
        start.record()
        result = call()
        stop.record()
        # Had the sleep ended before the call was enqueued, the gap before it would be in the time.
        if start.query():
            self._sleep_cycles = min(2 * self._sleep_cycles, _LONGEST_SLEEP_CYCLES)
        self.synchronize()
        return result, start.elapsed_time(stop)

    @contextmanager
    def memory(self, *, poisoned: bool) -> Iterator[None]:
        """torch's deterministic mode fills `torch.empty` with NaN."""
        before = torch.are_deterministic_algorithms_enabled()
        if poisoned:
            torch.use_deterministic_algorithms(True, warn_only=True)
            torch.utils.deterministic.fill_uninitialized_memory = True
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before)

    def peaks(self) -> Peaks | None:
        """The data sheet's, for the devices that are listed."""
        return of(torch.cuda.get_device_name(self.torch_device))

    def launches(self) -> int | None:
        """Not known without a profiler."""
        return None

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
            **compiler.identity(), **_nvml(torch.device(self.torch_device).index or 0),
        }  # fmt: skip

    def _empty_l2(self) -> None:
        """Writes and then reads twice the cache: a flush that only writes leaves dirty lines to write back."""
        if self._flush is None:
            size = torch.cuda.get_device_properties(self.torch_device).L2_cache_size
            self._flush = torch.empty(max(_FLUSHES * size, 1 << 20) // 4, dtype=torch.float32, device=self.torch_device)
        self._flush.fill_(1.0)
        self._flush.sum()


def _nvml(index: int) -> dict[str, Any]:
    """Driver, clocks and temperature now; empty where the library cannot say."""
    try:
        import pynvml

        pynvml.nvmlInit()
        uuid = str(torch.cuda.get_device_properties(index).uuid)
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
        return {
            "driver": pynvml.nvmlSystemGetDriverVersion(),
            "sm_clock_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "memory_clock_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
            "temperature_c": pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
            "throttle_reasons": pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
        }
    except Exception as error:  # NVML is information only: whatever it lacks, the run goes on
        return {"nvml": f"{type(error).__name__}: {error}"}
