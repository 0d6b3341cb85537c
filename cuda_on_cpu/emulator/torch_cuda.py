"""Makes torch in this process use the emulated CUDA device. Only a worker process may do so: it cannot be undone."""

from __future__ import annotations

import ctypes
import functools
import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from cuda_on_cpu.emulator import cuda_operators, torch_graphs
from cuda_on_cpu.emulator.shared_memory_limit import LIMIT_BYTES, OPT_IN_BYTES

_NAME = "emulated CUDA device"
_CAPABILITY = (9, 0)
_VERSION = "13.0"
_CYCLES_PER_S = 1e9
# The memory of an H200, and the part of it that is free here (emulator/properties.h).
_TOTAL_BYTES, _FREE_BYTES = 150_109_880_320, 2**33
# The errors of torch without CUDA or without a GPU, for what the emulation lacks. torch.utils.cpp_extension.load builds
# several CUDA files for a real GPU.
_LACKING = re.compile(
    r"not compiled with CUDA|dummy base class|requires CUDA\. PyTorch splits|no attribute '_?cuda"
    r"|CUDA_HOME environment variable is not set|no CUDA-capable device|CUDA driver version is insufficient"
    r"|Could not find any NVRTC library|Cannot access storage of Sparse|Backend doesn't support synchronizing"
)
_runtime: ctypes.CDLL | None = None
_host_storage = torch._C.StorageBase.__new__
_torch_compile: Callable[..., Any] = torch.compile


def install(library: Path) -> None:
    """Makes torch in this process use the emulated device.

    Loads the emulator's runtime library from the path `library`. Replaces functions and classes of `torch.cuda`, and a
    few of torch itself, such as `torch.compile` and `Tensor.pin_memory`. A second call does nothing.
    """
    global _runtime
    if _runtime is not None:
        return
    torch.ops.load_library(str(library))
    _runtime = ctypes.CDLL(str(library))
    _runtime.emulator_failure.restype = _runtime.emulator_lack.restype = ctypes.c_char_p
    _runtime.emulator_refused_launch.restype = ctypes.c_char_p
    _runtime.emulator_launches.restype = _runtime.emulator_launched_threads.restype = ctypes.c_uint64
    _runtime.emulator_profile_end.restype = ctypes.c_char_p
    _runtime.emulator_skip_kernels.argtypes = _runtime.emulator_refused_launch.argtypes = [ctypes.c_bool]
    _runtime.emulator_install()
    cuda_operators.register()
    torch_graphs.install(_runtime, current_stream)
    for name, value in _replacements().items():
        setattr(torch.cuda, name, value)
    torch._C._cuda_getCurrentRawStream = _returns(0)  # torch.compile calls this function
    torch.backends.cudnn.enabled = False
    torch.version.cuda = _VERSION
    torch.compile = _compile
    torch.backends.cuda.is_built = _returns(True)
    torch.Tensor.record_stream = lambda tensor, stream: None
    torch.Tensor.pin_memory = lambda tensor, device=None: tensor.clone()  # the emulated device can read all host memory
    torch.UntypedStorage.__new__ = _storage
    for name in ("mark", "range_push", "range_pop", "range_start", "range_end"):
        setattr(torch.cuda.nvtx, name, _returns(None))


def lacks(error: BaseException) -> bool:
    """Returns whether an exception says that torch lacks a part that the emulated device does not replace.

    Returns false in a process that does not use the emulated device.
    """
    return _runtime is not None and bool(_LACKING.search(str(error)))


def lack() -> str:
    """Returns a sentence about the construct that a kernel of this process has reached and that cannot be emulated.

    The sentence begins with the construct's place, in the form `file:line: `. It is empty if no kernel has reached one.
    """
    return "" if _runtime is None else _runtime.emulator_lack().decode()


def synchronize(device: Any = None) -> None:
    """Replaces `torch.cuda.synchronize`.

    Raises RuntimeError if a kernel in this process has failed, or if a stream is being captured. It never waits,
    because a launch on the emulated device returns only when the kernel has ended.
    """
    assert _runtime is not None
    if _runtime.emulator_synchronize():
        raise RuntimeError(_runtime.emulator_failure().decode())


def as_cuda(host: torch.Tensor) -> torch.Tensor:
    """Returns a tensor on the emulated device that uses the same memory as `host`, a tensor on the CPU."""
    placed: torch.Tensor = torch.ops.emulator.as_cuda(host)
    return placed


def launches() -> int:
    """Returns the number of launches of CUDA kernels so far in this process, with those that failed or were skipped."""
    assert _runtime is not None
    return int(_runtime.emulator_launches())


def skip_kernels(skip: bool) -> None:
    """If `skip` is true, later kernel launches in this process succeed and run nothing. If false, launches run kernels.

    While kernels are skipped, each launch after the first 10,000 raises an exception. Otherwise host code that repeats
    a kernel until its result is good enough would never end.
    """
    assert _runtime is not None
    _runtime.emulator_skip_kernels(skip)


def launched_threads() -> int:
    """Returns the number of threads of all launches so far in this process that were not refused."""
    assert _runtime is not None
    return int(_runtime.emulator_launched_threads())


def thin_grids() -> None:
    """Lets later launches in this process run a 64th of their blocks in x, rounded up, as if they had asked for these.

    A kernel whose loop covers what its grid does not cover still gives the right answer.
    """
    assert _runtime is not None
    _runtime.emulator_thin_grids()


def begin_dry_run() -> None:
    """Makes this process run the code of the host alone from now on: for launches and shapes at sizes of any memory.

    Later allocations of device memory have addresses, but no bytes. Launches are checked against the device's limits,
    and run nothing. torch's operators run on the device `meta`. Code that needs a value from the device's memory ends
    the process, or it dies by an access to that memory. It cannot be undone.
    """
    assert _runtime is not None
    _runtime.emulator_begin_dry_run()


def refused_launch(*, raised: bool) -> str:
    """Returns the message of the last launch that the device refused; an empty text if there is none.

    If not `raised`, returns an empty text also if the candidate has taken the error (`cudaGetLastError`).
    """
    assert _runtime is not None
    text: bytes = _runtime.emulator_refused_launch(raised)
    return text.decode()


def profile_begin() -> None:
    """Starts a profile: counts the accessed bytes, the barriers and the warp operations of each kernel launch.

    Some blocks of the first launches of each kernel and size are recorded: their memory accesses by machine
    instruction, and their basic blocks. Launches of at most 32 kernels and sizes are recorded.
    """
    assert _runtime is not None
    _runtime.emulator_profile_begin()


def profile_end() -> list[dict[str, Any]]:
    """Ends the profile. Returns one mapping for each kernel launch since `profile_begin`, in order.

    Each mapping has the kernel's name, the sizes of grid and block, the numbers of bytes accessed, barriers and warp
    operations. It also has what the recorded warps did: by machine instruction, for the 100 that move the most bytes,
    and by basic block, for the 400 that were executed most often.
    """
    assert _runtime is not None
    launched: list[dict[str, Any]] = json.loads(_runtime.emulator_profile_end().decode())
    return launched


class Stream:
    """Replaces `torch.cuda.Stream`. A stream never has pending work: a launch returns after its kernel ends."""

    def __init__(self, device: Any = None, priority: int = 0, *_: Any, **__: Any) -> None:
        self.device = torch.device("cuda", 0)
        self.priority = priority
        self._entered: list[StreamContext] = []

    @property
    def cuda_stream(self) -> int:
        return torch_graphs.captured_stream()

    def synchronize(self) -> None:
        synchronize()

    def query(self) -> bool:
        synchronize()
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
        self._entered.append(StreamContext(self))
        self._entered[-1].__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._entered.pop().__exit__()


_default_stream = Stream()
_current = threading.local()


def current_stream(device: Any = None) -> Stream:
    """Replaces `torch.cuda.current_stream`. All streams do their work in program order."""
    stream: Stream = getattr(_current, "stream", _default_stream)
    return stream


def set_stream(stream: Stream | None) -> None:
    """Replaces `torch.cuda.set_stream`. None changes nothing."""
    _current.stream = stream or current_stream()


class StreamContext:
    """Replaces `torch.cuda.stream`: a context in which `stream` is the current stream. None changes nothing."""

    def __init__(self, stream: Stream | None = None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        self._before = current_stream()
        set_stream(self.stream)

    def __exit__(self, *_: object) -> None:
        set_stream(self._before)


class Event:
    """Replaces `torch.cuda.Event`. A recorded event is complete at once and holds the time of the host's clock."""

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


class _NoContext:
    """A context manager that does nothing. Replaces `torch.cuda.device` and `device_of`."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def _properties(device: Any = None) -> SimpleNamespace:
    return SimpleNamespace(
        name=_NAME, major=_CAPABILITY[0], minor=_CAPABILITY[1], multi_processor_count=132, warp_size=32,
        total_memory=_TOTAL_BYTES, max_threads_per_multi_processor=2048, max_threads_per_block=1024,
        shared_memory_per_block=LIMIT_BYTES, shared_memory_per_block_optin=OPT_IN_BYTES,
        shared_memory_per_multiprocessor=228 * 1024, regs_per_multiprocessor=65536, L2_cache_size=60 * 2**20,
        uuid="emulated", is_integrated=False, is_multi_gpu_board=False, gcnArchName="",
    )  # fmt: skip


def _sleep(cycles: int) -> None:
    """Replaces `torch.cuda._sleep`: sleeps for `cycles` of the emulated device's clock, which runs at 1 GHz."""
    time.sleep(max(cycles, 0) / _CYCLES_PER_S)


@functools.wraps(_torch_compile)
def _compile(
    model: Any = None, *, backend: Any = None, mode: str | None = None, options: Any = None, **keywords: Any
) -> Any:
    """Replaces `torch.compile`: the backend `aot_eager` replaces inductor, which compiles for a real GPU only.

    Inductor is the default backend. Its settings `mode` and `options` are dropped, too. A call with another backend is
    unchanged. `aot_eager` traces the model in the same way as inductor, and then runs torch's own operators.
    """
    if backend in (None, "inductor"):
        backend, mode, options = "aot_eager", None, None
    return _torch_compile(model, backend=backend, mode=mode, options=options, **keywords)


def _storage(cls: type, *arguments: Any, device: Any = None, **keywords: Any) -> Any:
    """Replaces the constructor of `torch.UntypedStorage`: returns a storage on `device`, which may be the emulated one.

    torch's own constructor makes a storage on a CUDA device only if torch was built with CUDA.
    """
    if device is None or torch.device(device).type != "cuda":
        return _host_storage(cls, *arguments, device=device, **keywords)
    if arguments and not isinstance(arguments[0], int):
        values = torch.tensor(arguments[0], dtype=torch.uint8)
        return values.to(device).untyped_storage()
    return torch.empty(*(arguments or (0,)), dtype=torch.uint8, device=device).untyped_storage()


def _returns(value: Any) -> Callable[..., Any]:
    """Returns a new function that takes any arguments and returns `value`.

    Two attributes of torch must not share one such function, because torch.compile tells functions apart by identity.
    """
    return lambda *_, **__: value


def _no_context() -> type:
    return type("NoContext", (_NoContext,), {})


_CONSTANTS: dict[Any, str] = {
    None: "_lazy_init init set_device empty_cache ipc_collect reset_peak_memory_stats manual_seed "
    "manual_seed_all reset_max_memory_allocated reset_max_memory_cached reset_accumulated_memory_stats",
    True: "is_available is_initialized _is_compiled is_bf16_supported",
    0: "current_device _exchange_device _maybe_exchange_device memory_allocated max_memory_allocated "
    "memory_reserved max_memory_reserved get_rng_state_offset utilization",
}


def _replacements() -> dict[str, Any]:
    """Returns a mapping from names of attributes of `torch.cuda` to the values that `install` gives them."""
    replacements = {name: _returns(value) for value, names in _CONSTANTS.items() for name in names.split()}
    replacements |= {name: _no_context() for name in ("device", "device_of")}
    # Pinning memory needs no work: the emulated device can read all host memory.
    pins = {"cudaHostRegister": _returns(0), "cudaHostUnregister": _returns(0)}
    runtime = SimpleNamespace(cudaError=SimpleNamespace(success=0), **pins)
    return replacements | {
        "device_count": _returns(1),
        "get_device_name": _returns(_NAME),
        "get_device_capability": _returns(_CAPABILITY),
        "get_device_properties": _properties,
        "get_arch_list": _returns(["sm_90"]),
        "synchronize": synchronize,
        "_sleep": _sleep,
        "Stream": Stream,
        "ExternalStream": Stream,
        "can_device_access_peer": _returns(False),
        "cudart": lambda: runtime,
        "memory_stats": lambda device=None: {},
        "memory_stats_as_nested_dict": lambda device=None: {},
        "memory_summary": _returns(""),
        "Event": Event,
        "current_stream": current_stream,
        "set_stream": set_stream,
        "stream": StreamContext,
        "StreamContext": StreamContext,
        "default_stream": _returns(_default_stream),
        "mem_get_info": _returns((_FREE_BYTES, _TOTAL_BYTES)),
        "get_rng_state": lambda device="cuda": torch.get_rng_state(),
        "set_rng_state": lambda state, device="cuda": torch.set_rng_state(state),
    }
