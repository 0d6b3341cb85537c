"""Runs a problem's code on the CPU where the code asks for a CUDA device.

The judge runs the problem's code. If the device is emulated, the judge must not use a CUDA device, because the emulated
one exists only in worker processes. But KernelBench's examples call `.cuda()` in get_inputs().
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from kernel_harness.problem.torch_modes import FunctionMode

_CUDA = re.compile(r"cuda(:\d+)?")


class CudaToCpu(FunctionMode):
    """A context within which `.cuda()`, `.to("cuda")`, `device="cuda"` and `torch.device("cuda")` mean the CPU.

    The context applies to the current thread only. It patches nothing, so the caller's process stays as it is.
    `torch.Generator("cuda")` and functions of `torch.cuda` still mean CUDA, because torch does not pass them to the
    context.
    """

    def result_of(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Calls `func`, a torch function called within the context, with the CPU in place of each CUDA device."""
        if func is torch.Tensor.cuda:
            return _cuda(*args, **kwargs)
        return func(*map(_on_cpu, args), **{name: _on_cpu(value) for name, value in kwargs.items()})


def _on_cpu(argument: Any) -> Any:
    if isinstance(argument, str) and _CUDA.fullmatch(argument):
        return "cpu"
    if isinstance(argument, torch.device) and argument.type == "cuda":
        return torch.device("cpu")
    return argument


def _cuda(
    tensor: torch.Tensor,
    device: object = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> torch.Tensor:
    """Returns the tensor on the CPU. This function replaces `Tensor.cuda`, so it has the same parameters."""
    return tensor.to("cpu", non_blocking=non_blocking, memory_format=memory_format)


def cuda_replaced(source: str, *, emulated: bool) -> AbstractContextManager[Any]:
    """Returns a context in which the CPU replaces CUDA, if the device is emulated or there is no CUDA device.

    For a problem whose source does not contain "cuda", the context does nothing, because torch avoids the fused path of
    some layers within CudaToCpu.
    """
    needed = "cuda" in source and (emulated or not torch.cuda.is_available())
    return CudaToCpu() if needed else nullcontext()
