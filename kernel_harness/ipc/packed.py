"""Prepares a call's inputs for a worker: finds the place of each tensor in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kernel_harness.ipc import tensors
from kernel_harness.ipc.tensors import Leaf


@dataclass(frozen=True)
class Packed:
    """Inputs for a worker, with the place that each tensor has in a buffer of `size` bytes.

    `structure` is the nesting and the plain values of the inputs. `tensors` are their tensors, which no worker can
    reach. `leaves` describes each tensor in the buffer: dtype, shape, strides and offset.
    """

    structure: Any
    tensors: tuple[torch.Tensor, ...]
    leaves: tuple[Leaf, ...]
    size: int


def pack(inputs: Any, lead_bytes: int = 0, *, device: str | None = None) -> Packed:
    """Finds a place in a buffer for each tensor of `inputs`. Copies only tensors that are not on `device` yet.

    `lead_bytes` moves all tensors towards the buffer's end; it must be a multiple of tensors.CANARY_BYTES. `device` is
    None for tensors that stay where they are. Raises tensors.Unreadable if an input has a type that cannot be sent to
    another process.
    """
    structure, found = tensors.flatten(inputs)
    leaves, size = tensors.layout(found, lead_bytes)
    placed = found if device is None else [tensor.to(device) for tensor in found]
    return Packed(structure, tuple(placed), tuple(leaves), size)
