"""Makes this process's torch one that has a CUDA device. For the worker only: it cannot be undone."""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

_NAME = "emulated CUDA device"
_CAPABILITY = (9, 0)
_VERSION = "13.0"
_CYCLES_PER_S = 1e9
_runtime: ctypes.CDLL | None = None
_host_storage = torch._C.StorageBase.__new__


def install(library: Path) -> None:
    """Loads the emulator's runtime and lets `torch.cuda` answer for it, if it does not yet."""
    global _runtime
    if _runtime is not None:
        return
    torch.ops.load_library(str(library))
    _runtime = ctypes.CDLL(str(library))
    _runtime.emulator_failure.restype = ctypes.c_char_p
    _runtime.emulator_launches.restype = ctypes.c_uint64
    _runtime.emulator_profile_end.restype = ctypes.c_char_p
    _runtime.emulator_install()
    for name, value in _answers().items():
        setattr(torch.cuda, name, value)
    torch._C._cuda_getCurrentRawStream = _gives(0)  # torch.compile asks for it by this name
    torch.backends.cudnn.enabled = False
    torch.version.cuda = _VERSION
    torch.backends.cuda.is_built = _gives(True)
    torch.Tensor.record_stream = lambda tensor, stream: None
    torch.UntypedStorage.__new__ = _storage
    for name in ("mark", "range_push", "range_pop", "range_start", "range_end"):
        setattr(torch.cuda.nvtx, name, _gives(None))


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


def profile_begin() -> None:
    """From here on, what kernels do is counted."""
    assert _runtime is not None
    _runtime.emulator_profile_begin()


def profile_end() -> list[dict[str, Any]]:
    """Every launch since, with its sizes and counts."""
    assert _runtime is not None
    launched: list[dict[str, Any]] = json.loads(_runtime.emulator_profile_end().decode())
    return launched


class Stream:
    """Work on a stream is done before the call that asked for it returns."""

    def __init__(self, device: Any = None, priority: int = 0, *_: Any, **__: Any) -> None:
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


class _Within:
    """A context that changes nothing: there is one device and one order of work."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def _properties(device: Any = None) -> SimpleNamespace:
    return SimpleNamespace(
        name=_NAME, major=_CAPABILITY[0], minor=_CAPABILITY[1], multi_processor_count=4, warp_size=32,
        total_memory=2**33, max_threads_per_multi_processor=2048, max_threads_per_block=1024,
        shared_memory_per_block=48 * 1024, shared_memory_per_block_optin=227 * 1024,
        shared_memory_per_multiprocessor=228 * 1024, regs_per_multiprocessor=65536, L2_cache_size=2**25,
        uuid="emulated", is_integrated=False, is_multi_gpu_board=False, gcnArchName="",
    )  # fmt: skip


def _sleep(cycles: int) -> None:
    """Keeps the device busy, for so many cycles of the 1 GHz that `clock64` counts in."""
    time.sleep(max(cycles, 0) / _CYCLES_PER_S)


def _storage(cls: type, *arguments: Any, device: Any = None, **keywords: Any) -> Any:
    """A storage on the emulated device, which torch's own constructor knows in a CUDA build only."""
    if device is None or torch.device(device).type != "cuda":
        return _host_storage(cls, *arguments, device=device, **keywords)
    if arguments and not isinstance(arguments[0], int):
        values = torch.tensor(arguments[0], dtype=torch.uint8)
        return values.to(device).untyped_storage()
    return torch.empty(*(arguments or (0,)), dtype=torch.uint8, device=device).untyped_storage()


def _gives(value: Any) -> Callable[..., Any]:
    """A function of its own each time: torch.compile tells functions apart by identity."""
    return lambda *_, **__: value


def _context() -> type:
    return type("Within", (_Within,), {})


_CONSTANTS: dict[Any, str] = {
    None: "_lazy_init init set_device set_stream empty_cache ipc_collect reset_peak_memory_stats manual_seed "
    "manual_seed_all reset_max_memory_allocated reset_max_memory_cached reset_accumulated_memory_stats",
    True: "is_available is_initialized _is_compiled is_bf16_supported",
    0: "current_device _exchange_device _maybe_exchange_device memory_allocated max_memory_allocated "
    "memory_reserved max_memory_reserved get_rng_state_offset utilization",
}


def _answers() -> dict[str, Any]:
    """What `torch.cuda` says and does on the emulated device."""
    answers = {name: _gives(value) for value, names in _CONSTANTS.items() for name in names.split()}
    answers |= {name: _context() for name in ("device", "device_of", "stream")}
    default = Stream()
    # All host memory is as good as pinned.
    pins = {"cudaHostRegister": _gives(0), "cudaHostUnregister": _gives(0)}
    runtime = SimpleNamespace(cudaError=SimpleNamespace(success=0), **pins)
    return answers | {
        "device_count": _gives(1),
        "get_device_name": _gives(_NAME),
        "get_device_capability": _gives(_CAPABILITY),
        "get_device_properties": _properties,
        "get_arch_list": _gives(["sm_90"]),
        "synchronize": synchronize,
        "_sleep": _sleep,
        "Stream": Stream,
        "ExternalStream": Stream,
        "is_current_stream_capturing": _gives(False),
        "can_device_access_peer": _gives(False),
        "cudart": lambda: runtime,
        "memory_stats": lambda device=None: {},
        "memory_summary": _gives(""),
        "Event": Event,
        "current_stream": _gives(default),
        "default_stream": _gives(default),
        "mem_get_info": _gives((2**33, 2**33)),
        "get_rng_state": lambda device="cuda": torch.get_rng_state(),
        "set_rng_state": lambda state, device="cuda": torch.set_rng_state(state),
    }
