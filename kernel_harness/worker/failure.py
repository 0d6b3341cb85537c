"""Describes an exception that a request to a worker raised: the message that the judge gets in place of a reply."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable
from typing import Any

import torch

from cuda_on_cpu.compile.errors import BuildFailed, FullHeadersMissing, NoCompiler, UnsupportedConstruct
from cuda_on_cpu.emulator import torch_cuda
from kernel_harness.core.errors import line_in
from kernel_harness.ipc.messages import LONGEST_TEXT, Failure, Stage
from kernel_harness.worker import triton_failure

# The characters of a compiler's log that are sent to the judge: the first ones, because the first errors matter. One
# character can take six bytes of a message.
_LONGEST_LOG = 120_000
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
# Packages in which kernels are written. A machine without one of them says nothing about a candidate that needs it.
_KERNEL_LANGUAGES = ("cuda", "cupy", "cutlass", "numba", "pycuda", "tilelang", "triton", "warp")
# What cudaGetErrorString says of launches that fail (CUDA Runtime API, "Data types", cudaError), and what candidates
# say themselves. The text can only take a refusal away, so a candidate that forges it harms itself.
_LAUNCH_ERROR = re.compile(
    r"CUDA error|invalid (?:configuration )?argument|invalid device function|invalid resource handle|misaligned address"
    r"|illegal memory access|no kernel image is available|out of memory|too many resources requested"
    r"|launch\w*\b[^.]{0,20}\b(?:fail|error)|\bfail\w*\s+to\s+launch",
    re.IGNORECASE,
)


def described(
    error: BaseException, stage: Stage, file: str, model: Any, inputs: int, is_healthy: Callable[[], bool]
) -> Failure:
    """Returns the message to the judge that describes `error`, raised at the step `stage` of a request.

    `file` is the name of the candidate's file, `model` its model, and `inputs` the number of inputs of the last call.
    The message calls the exception a refusal (the model declines this shape) only if the device still works, which
    `is_healthy` finds out.
    """
    lacking, reached = torch_cuda.lacks(error), torch_cuda.lack()
    if isinstance(error, (UnsupportedConstruct, NoCompiler)) or _lacks_kernel_language(error) or lacking or reached:
        stage = Stage.UNSUPPORTED  # this is no mistake of the candidate
    elif isinstance(error, FullHeadersMissing):
        stage = Stage.FULL_HEADERS
    elif isinstance(error, BuildFailed):
        stage = Stage.BUILD
    healthy = is_healthy()
    message, line = _message(error), line_in(file, error)
    if refused := triton_failure.refused(error, file):
        stage, (told, line) = Stage.BUILD, refused
        message = f"{_place(file, line)}: Triton does not compile this kernel: {told}"
    if line is None and stage is Stage.CALL and type(error) is TypeError:
        message, line = _wrong_signature(model, file, inputs) or (message, line)
    if lacking:
        message = f"{_place(file, line)}: the emulation lacks this part of torch.cuda: {_sentence(message)}"
    message = reached or message
    return Failure(
        stage,
        type="OutOfMemoryError" if _is_out_of_memory(error) else type(error).__name__,
        message=message[:LONGEST_TEXT],
        line=line,
        log=_log(error),
        refusal=healthy and is_refusal(error),
    )


def _wrong_signature(model: Any, file: str, inputs: int) -> tuple[str, int] | None:
    """Returns a message and a line for a model whose `forward` does not take this number of `inputs`.

    The line is the first of `forward` in the candidate's file. Returns None if `forward` takes the inputs or is not a
    Python function of that file.
    """
    try:
        forward = model.forward
        code = inspect.unwrap(forward).__code__
        signature = inspect.signature(forward)
    except Exception:  # the candidate's attributes may be anything
        return None
    names = [name for name, each in signature.parameters.items() if each.kind in _POSITIONAL]
    if code.co_filename != file or len(names) == inputs:
        return None
    try:
        signature.bind(*[None] * inputs)
    except TypeError:
        listed = f" ({', '.join(names)})" if names else ""
        takes = f"{len(names)} input{'' if len(names) == 1 else 's'}{listed}"
        return f"forward takes {takes}, but the problem has {inputs}", code.co_firstlineno
    return None


def _lacks_kernel_language(error: BaseException) -> bool:
    """Returns whether the error is the import of a package for writing kernels that is not installed."""
    return isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in _KERNEL_LANGUAGES


def _place(file: str, line: int | None) -> str:
    return file if line is None else f"{file}:{line}"


def _sentence(text: str) -> str:
    """Returns the first sentence of a text, without its full stop."""
    return text.strip().partition("\n")[0].partition(". ")[0]


def _message(error: BaseException) -> str:
    """Returns the text of an exception, changed in two cases.

    If torch raises an internal error because the device has too little free memory, the text says how much is free. If
    Triton is not installed, the text says how to install it.
    """
    text = str(error)
    if _is_out_of_memory(error) and not isinstance(error, torch.OutOfMemoryError):
        free, total = torch.cuda.mem_get_info()
        return f"CUDA out of memory: {free / 1e9:.3g} GB of the device's {total / 1e9:.4g} GB are free."
    if isinstance(error, ModuleNotFoundError) and error.name == "triton":
        return f"{text}. Kernels in Triton need it, without a GPU too: pip install triton"
    return text


def _is_out_of_memory(error: BaseException) -> bool:
    """Returns whether `error` says that the device has too little free memory.

    Behind the wall, torch cannot ask NVML which processes use the device's memory. It then raises an internal error in
    place of its OutOfMemoryError.
    """
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "NVML_SUCCESS ==" in str(error) and "CachingAllocator" in str(error)
    )


def _log(error: BaseException) -> str:
    """Returns the first _LONGEST_LOG characters of the compiler's log of the exception `error`.

    If `error` has no log, returns the last LONGEST_TEXT characters of its traceback.
    """
    log = getattr(error, "log", "")
    if isinstance(log, str) and log:
        return log[:_LONGEST_LOG]
    return "".join(traceback.format_exception(error))[-LONGEST_TEXT:]


def is_refusal(error: BaseException) -> bool:
    """Returns whether an exception may mean that a kernel declines a shape.

    It is one of `assert`, a ValueError, a NotImplementedError or a RuntimeError, which the macro TORCH_CHECK raises. A
    CUDA error and exhausted device memory also arrive as RuntimeErrors, but they decline nothing. An exception whose
    text names a failed launch declines nothing, either: many candidates test themselves whether a launch has failed,
    and raise an exception of these types with CUDA's text of the error or their own.
    """
    if _is_out_of_memory(error) or not isinstance(error, (AssertionError, ValueError, RuntimeError)):
        return False
    return not _LAUNCH_ERROR.search(str(error)[:LONGEST_TEXT])
