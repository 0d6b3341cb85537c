"""Inputs in the memory that the judge shares with a worker: writes them there, and finds what a call has changed.

Known bytes (canaries) fill all of the memory that belongs to no input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import torch

from kernel_harness.ipc.packed import Packed
from kernel_harness.ipc.tensors import CANARY_BYTES, Leaf, is_dense

# The elements that are compared at a time: a comparison needs one byte of memory for each of them.
_COMPARED = 1 << 27
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Written:
    """What a call has written to its inputs and beside them.

    `inputs` has the indices, from 0, of the input tensors of which a byte has changed. `after` has copies of these
    tensors as the call has left them, by index; a copy for which there was too little memory is missing. `beside` has
    the indices of the tensors next to which, or in the gaps of which, a byte has changed.
    """

    inputs: tuple[int, ...] = ()
    beside: tuple[int, ...] = ()
    after: Mapping[int, torch.Tensor] = field(default_factory=dict)

    def also(self, later: Written) -> Written:
        """Returns what this call or a later one has written, with the copies of this call."""
        inputs, beside = ({*a, *b} for a, b in ((self.inputs, later.inputs), (self.beside, later.beside)))
        return Written(tuple(sorted(inputs)), tuple(sorted(beside)), self.after)

    @property
    def nbytes(self) -> int:
        """Returns the number of bytes of the copies."""
        return sum(int(tensor.nbytes) for tensor in self.after.values())


def fill(memory: torch.Tensor, packed: Packed) -> None:
    """Writes the inputs `packed` to their places in the flat uint8 tensor `memory`, with canaries around them."""
    surround(memory, packed.leaves, packed.size)
    write(memory, packed.leaves, packed.tensors)


def written(memory: torch.Tensor, packed: Packed) -> Written:
    """Compares `memory`, to which `fill` has written `packed`, with what was written there. Waits for the result.

    Copies of changed inputs are where the judge's own tensors are (`Packed.tensors`).
    """
    flags = [unequal(before, leaf.view(memory)) for before, leaf in zip(packed.tensors, packed.leaves, strict=True)]
    changed = [i for i, flag in enumerate(_read(flags)) if flag]
    after = {}
    for i in changed:
        with suppress(torch.OutOfMemoryError):
            after[i] = packed.leaves[i].view(memory).to(packed.tensors[i].device, copy=True)
    return Written(tuple(changed), tuple(damaged(memory, packed.leaves, packed.size)), after)


def write(memory: torch.Tensor, leaves: Sequence[Leaf], tensors: Iterable[torch.Tensor]) -> None:
    """Copies `tensors` to the places in the flat uint8 tensor `memory` that `leaves` describes.

    `leaves` has the dtype, shape, strides and offset of each tensor, in the order of `tensors`.
    """
    for leaf, tensor in zip(leaves, tensors, strict=True):
        leaf.view(memory).copy_(tensor)


def surround(memory: torch.Tensor, leaves: Sequence[Leaf], size: int) -> None:
    """Fills each of the first `size` bytes of `memory` that belongs to no tensor with a known value (a canary).

    `damaged` finds the bytes that something has changed later. `leaves` describes the places of the tensors, in
    ascending order.
    """
    for start, end in _gaps(leaves, size):
        memory[start:end] = _canary(start, end, memory.device)


def damaged(memory: torch.Tensor, leaves: Sequence[Leaf], size: int) -> list[int]:
    """Returns the indices of tensors next to which something wrote: the known bytes before or after them have changed.

    A change between two tensors counts for both. `leaves` describes the places of the tensors in the first `size` bytes
    of `memory`, in ascending order.
    """
    gaps = _gaps(leaves, size)
    flags = _read([(memory[a:b] != _canary(a, b, memory.device)).any() for a, b in gaps])
    return [i for i in range(len(leaves)) if flags[i] or flags[i + 1]]


def unequal(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Returns whether two tensors of equal shape and dtype differ in a byte: a bool tensor on the device of `one`.

    The payloads of NaN and the signs of zeros count. The device is not waited for.
    """
    flags = [(a != b.to(a.device)).any() for a, b in zip(_parts(one, other), _parts(other, one), strict=True)]
    return torch.stack(flags).any() if flags else torch.zeros((), dtype=torch.bool, device=one.device)


def _parts(tensor: torch.Tensor, other: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yields the tensor as integers, in parts of at most _COMPARED elements.

    The order of the elements is that in memory if both tensors are dense and have the same strides.
    """
    whole = torch.view_as_real(tensor) if tensor.dtype is torch.complex128 else tensor
    whole = whole.view(_INTEGERS[whole.itemsize])
    if tensor.stride() == other.stride() and is_dense(tensor):
        whole = whole.as_strided((whole.numel(),), (1,))
    rows = max(1, _COMPARED * whole.shape[0] // max(1, whole.numel())) if whole.ndim else 1
    yield from whole.split(rows) if whole.numel() and whole.ndim else [whole]


def _read(flags: Sequence[torch.Tensor]) -> list[bool]:
    return torch.stack(list(flags)).tolist() if flags else []


def _gaps(leaves: Sequence[Leaf], size: int) -> list[tuple[int, int]]:
    """Returns the offsets of the first byte and of the end of each gap: before, between and after the tensors.

    The buffer has `size` bytes. `leaves` describes the tensors in ascending order. A gap may be empty.
    """
    starts = [0, *(leaf.offset + leaf.nbytes for leaf in leaves)]
    return list(zip(starts, [*(leaf.offset for leaf in leaves), size], strict=True))


def _canary(start: int, end: int, device: torch.device) -> torch.Tensor:
    return (torch.arange(start, end, device=device) % CANARY_BYTES * 37 + 11).to(torch.uint8)
