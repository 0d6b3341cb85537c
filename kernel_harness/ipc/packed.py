"""Prepares a call's inputs for a worker: finds the place of each tensor in shared memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from kernel_harness.ipc import tensors
from kernel_harness.ipc.tensors import Leaf


@dataclass(frozen=True)
class Packed:
    """Inputs for a worker that have not been sent yet: the judge's tensors, and a place for a copy of each in a buffer.

    The field `tensors` has the judge's own tensors; no worker can reach them. `leaves` has, in the same order, the
    place of each copy: dtype, shape, strides and offset in the buffer. The module
    `kernel_harness.ipc.input_memory` makes the copies. `size` is the size of the buffer in bytes. `structure` is the
    nesting of the inputs with their values that are not tensors. `changed` has the indices of the tensors that the
    reference changes in place, once that is known.
    """

    structure: Any
    tensors: tuple[torch.Tensor, ...]
    leaves: tuple[Leaf, ...]
    size: int
    changed: tuple[int, ...] = ()

    @property
    def on_host(self) -> bool:
        """Returns whether the judge's tensors are in the host's memory. False if there are no tensors."""
        return bool(self.tensors) and not any(tensor.is_cuda for tensor in self.tensors)


def pack(inputs: Any, *, device: str | None = None) -> Packed:
    """Finds a place in a buffer for each tensor of `inputs`, and returns the inputs with their places as a Packed.

    The judge's tensors in the Packed are on `device`: a tensor elsewhere is copied. If `device` is None, no tensor is
    copied. Raises tensors.Unreadable if an input cannot be sent to another process (`tensors.flatten`).
    """
    structure, found = tensors.flatten(inputs)
    found = [tensor.resolve_conj().resolve_neg() for tensor in found]  # whose bytes are the numbers
    leaves, size = tensors.layout_as_it_is(found)
    placed = found if device is None else [tensor.to(device) for tensor in found]
    return Packed(structure, tuple(placed), tuple(leaves), size)


def moved(packed: Packed, by: int) -> Packed:
    """Returns the same inputs with each place `by` bytes further on, in a buffer that is `by` bytes larger.

    `by` must be a multiple of GUARD_BYTES.
    """

    def further(leaf: Leaf) -> Leaf:
        return replace(leaf, offset=leaf.offset + by, storage=None if leaf.storage is None else leaf.storage + by)

    return replace(packed, leaves=tuple(map(further, packed.leaves)), size=packed.size + by)
