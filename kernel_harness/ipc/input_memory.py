"""Inputs in the memory that the judge shares with a worker: writes them there, and finds what a call has changed.

Known bytes (guard bytes) fill all of the memory that belongs to no input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache

import torch

from kernel_harness.core.strides import copy, is_dense, seen_in
from kernel_harness.ipc.packed import Packed
from kernel_harness.ipc.tensors import GUARD_BYTES, Leaf, end_of

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
    """Writes the inputs `packed` to their places in the flat uint8 tensor `memory`, with guard bytes around them."""
    surround(memory, packed.leaves, packed.size)
    write(memory, packed.leaves, packed.tensors)


def written(memory: torch.Tensor, packed: Packed) -> Written:
    """Compares `memory`, to which `fill` has written `packed`, with what was written there. Waits for the result.

    Copies of changed inputs are where the judge's own tensors are (`Packed.tensors`).
    """
    flags = [unequal(leaf.view(memory), before) for before, leaf in zip(packed.tensors, packed.leaves, strict=True)]
    changed = [i for i, flag in enumerate(_read(flags)) if flag]
    after = {}
    for i in changed:
        with suppress(RuntimeError):  # also raised, as a plain one, by torch's allocator of the host's memory
            after[i] = packed.leaves[i].view(memory).to(packed.tensors[i].device, copy=True)
    return Written(tuple(changed), tuple(damaged(memory, packed.leaves, packed.size)), after)


def write(memory: torch.Tensor, leaves: Sequence[Leaf], tensors: Iterable[torch.Tensor]) -> None:
    """Copies `tensors` to the places in the flat uint8 tensor `memory` that `leaves` describes.

    `leaves` has the dtype, shape, strides and offset of each tensor, in the order of `tensors`.
    """
    for leaf, tensor in zip(leaves, tensors, strict=True):
        copy(tensor, leaf.view(memory))


def surround(memory: torch.Tensor, leaves: Sequence[Leaf], size: int) -> None:
    """Fills each of the first `size` bytes of `memory` that belongs to no tensor with a known value (a guard byte).

    Also fills the places of tensors that have gaps or share a storage, so `write` must follow. `damaged` finds the
    bytes that something has changed later. `leaves` describes the places of the tensors.
    """
    storages = _storages(leaves)
    for start, end in [*_between(storages, size), *((each.start, each.end) for each in storages if each.has_gaps)]:
        for part, guard in _guards(memory, start, end):
            part.copy_(guard)


def damaged(memory: torch.Tensor, leaves: Sequence[Leaf], size: int) -> list[int]:
    """Returns the indices of tensors beside which something wrote: the known bytes around or between their elements.

    A change between two storages counts for the tensors in both. `leaves` describes the places of the tensors in the
    first `size` bytes of `memory`.
    """
    storages = _storages(leaves)
    flags = [_guards_differ(memory, start, end) for start, end in _between(storages, size)]
    within = [_gaps_differ(memory, leaves, each) for each in storages if each.has_gaps]
    outside, inside = (found := _read([*flags, *within]))[: len(flags)], iter(found[len(flags) :])
    return sorted(
        i
        for n, storage in enumerate(storages)
        if (storage.has_gaps and next(inside)) or outside[n] or outside[n + 1]
        for i in storage.held
    )


def copies(
    leaves: Sequence[Leaf], tensors: Sequence[torch.Tensor], device: str, dtype: torch.dtype | None = None
) -> list[torch.Tensor]:
    """Returns copies of `tensors` on `device`, with the strides, offsets and shared storages that `leaves` describes.

    If `dtype` is not None, floating-point tensors are converted to it. Tensors of different dtypes share no storage
    then. Other bytes of a storage are zero.
    """
    found, storages = list[torch.Tensor](), dict[tuple[int, torch.dtype], torch.Tensor]()
    ends = {each.start: each.end for each in _storages(leaves)}
    for leaf, tensor in zip(leaves, tensors, strict=True):
        moved = tensor.to(device)  # on its own: torch would convert on the host, which is slower
        wanted = dtype if dtype and tensor.is_floating_point() else tensor.dtype
        if leaf.storage is None:
            found.append(moved.to(wanted, copy=moved is tensor))
            continue
        if (key := (leaf.start, wanted)) not in storages:
            count = (ends[leaf.start] - leaf.start) // leaf.dtype.itemsize
            storages[key] = torch.zeros(count, dtype=wanted, device=device)
        at = (leaf.offset - leaf.start) // leaf.dtype.itemsize
        found.append(seen_in(storages[key], wanted, leaf.shape, leaf.stride, at))
        copy(moved, found[-1])
    return found


def placed(leaves: Sequence[Leaf], alone: Callable[[int, int], torch.Tensor]) -> list[torch.Tensor]:
    """Returns the tensors that `leaves` describes, in storages of their own, which some of them may share.

    `alone` returns the bytes of the buffer from one offset to another as a flat uint8 tensor that is all of a storage.
    """
    storages = {each.start: alone(each.start, each.end) for each in _storages(leaves)}

    def seen(leaf: Leaf) -> torch.Tensor:
        at = (leaf.offset - leaf.start) // leaf.dtype.itemsize
        return seen_in(storages[leaf.start], leaf.dtype, leaf.shape, leaf.stride, at)

    return list(map(seen, leaves))


def unequal(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Returns whether two tensors of equal shape and dtype differ in a byte: a bool tensor on the device of `one`.

    The payloads of NaN and the signs of zeros count. The device is not waited for.
    """
    flags = [(a != b.to(a.device)).any() for a, b in zip(_parts(one, other), _parts(other, one), strict=True)]
    return torch.stack(flags).any() if flags else torch.zeros((), dtype=torch.bool, device=one.device)


def _parts(tensor: torch.Tensor, other: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yields the tensor as integers, in parts of at most _COMPARED elements.

    The order of the elements is that in memory if both tensors are dense and have the same strides. Elements that have
    one address in both tensors are yielded once.
    """
    strides = zip(tensor.stride(), other.stride(), strict=True)
    whole = tensor[tuple(slice(0, 1) if each == (0, 0) else slice(None) for each in strides)]
    whole = as_integers(whole)
    if tensor.stride() == other.stride() and is_dense(tensor):
        whole = whole.as_strided((whole.numel(),), (1,))
    rows = max(1, _COMPARED * whole.shape[0] // max(1, whole.numel())) if whole.ndim else 1
    yield from whole.split(rows) if whole.numel() and whole.ndim else [whole]


def as_integers(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a view of the tensor with elements of an integer type, two for each element of 16 bytes."""
    parts = torch.view_as_real(tensor) if tensor.dtype is torch.complex128 else tensor
    return parts.view(_INTEGERS[parts.itemsize])


def _read(flags: Sequence[torch.Tensor]) -> list[bool]:
    return torch.stack(list(flags)).tolist() if flags else []


@dataclass(frozen=True)
class _Storage:
    """The bytes from `start` to `end` of a buffer, and the indices of the tensors that it holds.

    `has_gaps` is False if they are all those of one tensor without gaps.
    """

    start: int
    end: int
    held: tuple[int, ...]
    has_gaps: bool


def _storages(leaves: Sequence[Leaf]) -> list[_Storage]:
    """Returns the storages of the tensors that `leaves` describes, in ascending order."""
    held: dict[int, list[int]] = {}
    for i, leaf in enumerate(leaves):
        held.setdefault(leaf.start, []).append(i)
    return [
        _Storage(start, end_of(leaves[i] for i in each), tuple(each), leaves[each[0]].storage is not None)
        for start, each in sorted(held.items())
    ]


def _between(storages: Sequence[_Storage], size: int) -> list[tuple[int, int]]:
    """Returns the offsets of the first byte and of the end of each gap: before, between and after the storages.

    The buffer has `size` bytes. A gap may be empty.
    """
    starts = [0, *(each.end for each in storages)]
    return list(zip(starts, [*(each.start for each in storages), size], strict=True))


def _gaps_differ(memory: torch.Tensor, leaves: Sequence[Leaf], storage: _Storage) -> torch.Tensor:
    """Returns whether a byte of the storage that belongs to no tensor is not the guard byte."""
    now = memory[storage.start : storage.end]
    intact = torch.empty_like(now)
    for part, guard in _guards(intact, 0, intact.numel()):  # each storage begins where guard bytes begin
        part.copy_(guard)
    for leaf in (leaves[i] for i in storage.held):
        there = replace(leaf, offset=leaf.offset - storage.start, storage=0)
        copy(leaf.view(memory), there.view(intact))
    return unequal(intact, now)


def _guards_differ(memory: torch.Tensor, start: int, end: int) -> torch.Tensor:
    flags = [(part != guard).any() for part, guard in _guards(memory, start, end)]
    return torch.stack(flags).any() if flags else torch.zeros((), dtype=torch.bool, device=memory.device)


def _guards(memory: torch.Tensor, start: int, end: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields the parts of `memory` from `start` to `end`, each with the guard bytes that belong there."""
    period = _two_periods(memory.device)[start % GUARD_BYTES :][:GUARD_BYTES]
    middle = end - (end - start) % GUARD_BYTES
    if middle > start:
        yield memory[start:middle].view(-1, GUARD_BYTES), period
    if end > middle:
        yield memory[middle:end], period[: end - middle]


@cache
def _two_periods(device: torch.device) -> torch.Tensor:
    return (torch.arange(2 * GUARD_BYTES, device=device) % GUARD_BYTES * 37 + 11).to(torch.uint8)
