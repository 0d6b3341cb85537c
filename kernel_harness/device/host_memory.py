"""Memory of the host that takes a GPU's tensors where the GPU is short of memory."""

from __future__ import annotations

import psutil
import torch

from kernel_harness.core.errors import EnvironmentLacking

_LOCKED = 4  # memory is not locked if less than this many times its size is free on the host


def host_memory(like: torch.Tensor) -> torch.Tensor:
    """Returns new host memory for a copy of a GPU's tensor, if possible in locked pages, which a GPU copies faster.

    torch takes up to twice as many locked pages as needed, and keeps them for later. Raises EnvironmentLacking if the
    host has too little memory.
    """
    locked = psutil.virtual_memory().available > _LOCKED * like.nbytes
    for pin_memory in (locked, False):
        try:
            return torch.empty_like(like, device="cpu", pin_memory=pin_memory)
        except RuntimeError:  # the system locks no more pages, or has no more memory
            continue
    raise EnvironmentLacking(
        f"The device is short of memory, and the host has none for {like.nbytes / 1e9:.2f} GB of inputs or outputs."
    )
