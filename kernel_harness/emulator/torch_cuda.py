"""Makes this process's torch one that has a CUDA device. For the worker only: it cannot be undone."""

from __future__ import annotations

import ctypes
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

_NAME = "emulated CUDA device"
_CAPABILITY = (9, 0)
_runtime: ctypes.CDLL | None = None


def install(library: Path) -> None:
    """Loads the emulator's runtime and lets `torch.cuda` answer for it."""
    global _runtime
    torch.ops.load_library(str(library))
    _runtime = ctypes.CDLL(str(library))
    _runtime.emulator_failure.restype = ctypes.c_char_p
    _runtime.emulator_launches.restype = ctypes.c_uint64
    _runtime.emulator_install()
    for name, value in _answers().items():
        setattr(torch.cuda, name, value)
    torch.backends.cudnn.enabled = False


def synchronize(device: Any = None) -> None:
    """Raises RuntimeError, as `torch.cuda.synchronize` does, once a kernel has failed."""
    assert _runtime is not None
    if _runtime.emulator_synchronize():
        raise RuntimeError(_runtime.emulator_failure().decode())


def as_cuda(host: torch.Tensor) -> torch.Tensor:
    """The same bytes as a tensor of the emulated device."""
    placed: torch.Tensor = torch.ops.emulator.as_cuda(host)
    return placed


def launches() -> int:
    """Kernels launched so far in this process."""
    assert _runtime is not None
    return int(_runtime.emulator_launches())


class Stream:
    """Work on a stream is done before the call that asked for it returns."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        self.device = torch.device("cuda", 0)
        self.priority = priority
        self.cuda_stream = 0

    def synchronize(self) -> None:
        synchronize()

    def query(self) -> bool:
        return True

    def wait_stream(self, stream: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def record_event(self, event: Any = None) -> Any:
        event = event or Event()
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Event:
    """An event is complete as soon as it is recorded."""

    def __init__(self, enable_timing: bool = False, **_: Any) -> None:
        self._at: float | None = None

    def record(self, stream: Any = None) -> None:
        self._at = time.perf_counter()

    def wait(self, stream: Any = None) -> None:
        pass

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        synchronize()

    def elapsed_time(self, end: Event) -> float:
        if self._at is None or end._at is None:
            raise RuntimeError("Both events must be recorded before calculating elapsed time.")
        return (end._at - self._at) * 1e3


@contextmanager
def _within(*_: Any, **__: Any) -> Any:
    yield


def _properties(device: Any = None) -> SimpleNamespace:
    return SimpleNamespace(
        name=_NAME, major=_CAPABILITY[0], minor=_CAPABILITY[1], multi_processor_count=1, warp_size=32,
        total_memory=2**33, max_threads_per_multi_processor=2048, max_threads_per_block=1024,
        shared_memory_per_block=48 * 1024, shared_memory_per_block_optin=227 * 1024,
        shared_memory_per_multiprocessor=228 * 1024, regs_per_multiprocessor=65536, L2_cache_size=2**25,
        is_integrated=False, is_multi_gpu_board=False, gcnArchName="",
    )  # fmt: skip


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _zero(*_: Any, **__: Any) -> int:
    return 0


def _answers() -> dict[str, Any]:
    """What `torch.cuda` says and does on the emulated device."""
    default = Stream()
    return {
        "_lazy_init": _nothing, "init": _nothing, "is_available": lambda: True, "is_initialized": lambda: True,
        "_is_compiled": lambda: True, "device_count": lambda: 1, "current_device": _zero, "set_device": _nothing,
        "device": _within, "device_of": _within, "_exchange_device": _zero, "_maybe_exchange_device": _zero,
        "get_device_name": lambda device=None: _NAME, "get_device_capability": lambda device=None: _CAPABILITY,
        "get_device_properties": _properties, "get_arch_list": lambda: ["sm_90"],
        "synchronize": synchronize, "Stream": Stream, "Event": Event, "stream": _within, "set_stream": _nothing,
        "current_stream": lambda device=None: default, "default_stream": lambda device=None: default,
        "empty_cache": _nothing, "ipc_collect": _nothing, "memory_allocated": _zero, "max_memory_allocated": _zero,
        "memory_reserved": _zero, "max_memory_reserved": _zero, "reset_peak_memory_stats": _nothing,
        "mem_get_info": lambda device=None: (2**33, 2**33), "is_bf16_supported": lambda *_, **__: True,
        "manual_seed": _nothing, "manual_seed_all": _nothing,
        "get_rng_state": lambda device="cuda": torch.get_rng_state(),
        "set_rng_state": lambda state, device="cuda": torch.set_rng_state(state),
    }  # fmt: skip
