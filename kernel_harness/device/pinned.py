"""Shared memory that the GPU copies to and from directly: what moving bytes takes is noise in the judge's clock."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch

_READ_ONLY = 8  # cudaHostRegisterReadOnly, for a mapping that this process may not write to


def as_bytes(memory: Any) -> torch.Tensor:
    """A buffer, which may be read-only, as a uint8 tensor over the same bytes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # nothing is going to write to it
        return torch.frombuffer(memory, dtype=torch.uint8)


@contextlib.contextmanager
def pinned(memory: torch.Tensor, *, written: bool = False) -> Iterator[None]:
    """Within it the driver copies from `memory` (or to it, if it is `written`) without a detour, where it can.

    Through pinned memory 200 MB take 4 ms, from pages that are new to the process 25 ms.
    """
    runtime = torch.cuda.cudart()
    flags = 0 if written else _READ_ONLY
    taken = runtime.cudaHostRegister(memory.data_ptr(), memory.nbytes, flags) == runtime.cudaError.success
    if not taken:
        with contextlib.suppress(RuntimeError):  # takes the refusal off the error state that a candidate looks at
            torch.zeros(1, device="cuda")
    try:
        yield
    finally:
        if taken:
            runtime.cudaHostUnregister(memory.data_ptr())
