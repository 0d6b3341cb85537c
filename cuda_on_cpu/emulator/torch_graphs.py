"""CUDA graphs of torch on the emulated device: what replaces `torch.cuda.CUDAGraph` and the functions beside it.

The emulator's runtime library records and replays the work (torch_graphs.cpp). torch's own `torch.cuda.graph` and
`torch.cuda.make_graphed_callables` use the class of this module.
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch.cuda import graphs

_CALL = ctypes.CFUNCTYPE(None)
_MODES = ("global", "thread_local", "relaxed")
_state = SimpleNamespace(runtime=None, current_stream=None)
_pools = itertools.count(1)
_calls: list[Any] = []  # recorded during the present capture
_failures: list[BaseException] = []  # of recorded calls, in the present replay


def install(runtime: ctypes.CDLL, current_stream: Callable[[], Any]) -> None:
    """Replaces the parts of `torch.cuda` that capture and replay. `runtime` is the emulator's runtime library.

    `current_stream` is the function that replaces `torch.cuda.current_stream`.
    """
    _state.runtime, _state.current_stream = runtime, current_stream
    runtime.emulator_torch_captures.restype = ctypes.c_bool
    runtime.emulator_torch_stream.restype = ctypes.c_uint64
    for module in (torch.cuda, graphs):
        module.CUDAGraph = CUDAGraph
        module.graph_pool_handle = graph_pool_handle
        module.is_current_stream_capturing = is_capturing
    torch._C._host_emptyCache = lambda: None  # torch.cuda.graph calls it; torch without CUDA lacks it


def is_capturing() -> bool:
    """Replaces `torch.cuda.is_current_stream_capturing`. A capture includes the work of all streams of torch."""
    return _state.runtime is not None and bool(_state.runtime.emulator_torch_captures())


def captured_stream() -> int:
    """Returns the handle of the stream that is captured; 0, the handle of the legacy stream, if there is none."""
    return int(_state.runtime.emulator_torch_stream())


def graph_pool_handle() -> tuple[int, int]:
    """Replaces `torch.cuda.graph_pool_handle`. Each emulated graph has memory of its own, so the handle has no use."""
    return (0, next(_pools))


def record(work: Callable[[], None]) -> None:
    """Records a call of `work`, a function of the host, in the present capture. It is called at each replay.

    `CUDAGraph.replay` raises the first exception of the recorded functions, after it has called all of them.
    """

    def call() -> None:
        try:
            work()
        except BaseException as error:  # ctypes would only print it
            _failures.append(error)

    _calls.append(_CALL(call))
    _state.runtime.emulator_record_call(_calls[-1])


class CUDAGraph:
    """Replaces `torch.cuda.CUDAGraph`.

    During a capture, kernels are only recorded. Torch's operators run, too, because the sizes of their results are not
    known before. The end of the capture restores the contents of all memory that the operators wrote and the state of
    torch's random generator, and fills memory that was allocated during the capture with NaN.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        self._destroy: weakref.finalize[Any, Any] | None = None
        self._pool: Any = None
        self._random: torch.Tensor | None = None  # the generator's state at the begin of the capture

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **_: Any) -> None:
        if self._destroy is not None:
            raise RuntimeError(
                "This CUDAGraph instance already owns a captured graph. "
                "To capture a new graph, create a new instance or call reset() on this one."
            )
        if capture_error_mode not in _MODES:
            raise RuntimeError(
                f"Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got {capture_error_mode}"
            )
        if _state.current_stream() is torch.cuda.default_stream():
            raise RuntimeError(
                "CUDA graphs must be captured on a non-default stream. "
                "(However, after capture, it's ok to replay them on the default stream.)"
            )
        torch.ops.emulator.capture_begin(capture_error_mode)
        self._pool = pool or graph_pool_handle()
        self._random = torch.get_rng_state()
        _calls.clear()

    def capture_end(self) -> None:
        calls = tuple(_calls)
        handle = torch.ops.emulator.capture_end()
        if self._random is not None:
            torch.set_rng_state(self._random)
        # The finalizer also keeps the recorded functions alive as long as the graph.
        self._destroy = weakref.finalize(self, _destroy, handle, calls)
        self._destroy.atexit = False
        self._handle = handle

    def replay(self) -> None:
        self._require("replay")
        _failures.clear()
        torch.ops.emulator.replay(self._handle)
        if _failures:
            raise _failures[0]

    def reset(self) -> None:
        if self._destroy is not None:
            self._destroy()
        self._destroy = None

    def pool(self) -> Any:
        self._require("pool")
        return self._pool

    def instantiate(self) -> None:
        self._require("instantiate")

    def register_generator_state(self, generator: torch.Generator) -> None:
        pass  # a replay draws from the generator as any other call does

    def enable_debug_mode(self) -> None:
        pass

    def _require(self, method: str) -> None:
        if self._destroy is None:
            raise RuntimeError(f"Called CUDAGraph::{method} without a preceding successful capture.")


def _destroy(handle: int, calls: tuple[Any, ...]) -> None:
    torch.ops.emulator.destroy(handle)
