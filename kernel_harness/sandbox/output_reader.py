"""Copies the outputs of a worker's calls into memory that the worker cannot reach."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from kernel_harness.core.status import Status
from kernel_harness.core.strides import reach
from kernel_harness.device.exports import INPUTS_REGION
from kernel_harness.ipc import tensors
from kernel_harness.ipc.messages import Called, Exported, Place, Purpose, Received
from kernel_harness.ipc.packed import Packed
from kernel_harness.ipc.tensors import Leaf
from kernel_harness.sandbox.exchange import Exchange
from kernel_harness.sandbox.faults import Fault

# Outputs are copied only if they take at most _MOST_OUTPUT times the memory of right outputs, and _LITTLE_OUTPUT_BYTES
# more. Larger ones have another shape or dtype, which the verdict needs alone.
_MOST_OUTPUT, _LITTLE_OUTPUT_BYTES = 4, 1 << 26
_ALIGNMENT = 256
_MOST_PIECES = 1 << 14  # of a region; torch's pieces have 20 MB

Found = tuple[Any, tuple[torch.Tensor, ...]]
"""The nesting of an output, as `tensors.flatten_output` returns it, and its tensors."""


class OutputReader:
    """Reads the outputs of one worker from the memory that `exchange` shares.

    A worker whose memory is the host's copies its outputs to the memory for outputs. Those on a GPU stay where they
    are: the worker gives access to its memory (`export`, which gets the number of a region, the index of a piece and a
    time limit in s), and the judge copies the outputs from there and then overwrites them. So an output must be
    complete when the call is done, and a candidate cannot rely on what it holds later. `fetch` asks the worker for
    copies that did not fit. All access that one call's outputs need is given within `limit_s` seconds.

    `right_bytes` is the size of right outputs, None if unknown. `kept` has the indices of the outputs that a
    candidate may keep, which are not overwritten; None if that is not known yet, and then none is. `landing_bytes` is
    the size of the judge's copy of the last outputs.
    """

    def __init__(
        self, exchange: Exchange, export: Callable[[int, int, float], Received[Exported]],
        fetch: Callable[[], object], limit_s: float,
    ) -> None:  # fmt: skip
        self._exchange, self._export, self._fetch, self._limit_s = exchange, export, fetch, limit_s
        self._end = 0.0
        self.right_bytes: int | None = None
        self.kept: tuple[int, ...] | None = None
        self.landing_bytes = 0
        self._memory_bytes = 0  # of the memory for outputs that the last call needed
        self._found: Found = (None, ())

    def reserve(self) -> None:
        """Shares memory for outputs that is large enough for outputs like those of the last call."""
        self._exchange.reserve(Purpose.OUTPUTS, self._memory_bytes)

    def take(self) -> Found:
        """Returns what `read` has found, and forgets it."""
        found, self._found = self._found, (None, ())
        return found

    def read(self, reply: Called, packed: Packed, landing: torch.Tensor | None = None, at_leisure: bool = True) -> bool:
        """Copies the outputs that `reply` describes, for `take`. Returns whether it did.

        `landing` is flat memory for the copy; for memory of the host it already holds the first bytes of the memory for
        outputs. Unless `at_leisure`, outputs are copied only if that needs no other memory and no request to the worker
        but for access to a region. If they are far larger than right outputs, or too large for the device, they are not
        copied: they become tensors on torch's "meta" device, which have a shape and no values. Raises Fault if `reply`
        is malformed, and torch.OutOfMemoryError if the device has too little memory for right outputs.
        """
        self._end = time.monotonic() + self._limit_s
        size = sum(leaf.nbytes for leaf in reply.leaves)
        far_larger = self.right_bytes is not None and size > _MOST_OUTPUT * self.right_bytes + _LITTLE_OUTPUT_BYTES
        with _readable():
            if len(reply.places) != len(reply.leaves):
                raise tensors.Unreadable("the places are not those of the outputs")
            try:
                copies = None if far_larger else self._copies(reply, packed, landing, at_leisure)
            except torch.OutOfMemoryError:
                if self.right_bytes is None or size <= self.right_bytes:
                    raise
                copies = None
            if copies is None:
                if not far_larger and not at_leisure:
                    return False
                copies = [leaf.without_values() for leaf in reply.leaves]
            structure, found = tensors.flatten_output(tensors.unflatten(reply.structure, copies))
        self._found = structure, tuple(found)
        return True

    def _copies(
        self, reply: Called, packed: Packed, landing: torch.Tensor | None, at_leisure: bool
    ) -> list[torch.Tensor] | None:
        """Returns copies of the outputs, or None if they need what is allowed at leisure only."""
        copied = [leaf for leaf, place in zip(reply.leaves, reply.places, strict=True) if place is None]
        if self._exchange.turn is None and len(copied) < len(reply.leaves):
            raise tensors.Unreadable("it lies in memory of the process, of which the judge maps none")
        self._memory_bytes = self._exchange.needed(copied)
        fits = self._exchange.holds(Purpose.OUTPUTS, self._memory_bytes)
        if not at_leisure and not fits:
            return None
        if not fits:
            self._exchange.reserve(Purpose.OUTPUTS, self._memory_bytes)
            self._fetch()
        if self._exchange.turn is None:
            return self._from_host(reply.leaves, packed, landing if fits else None)
        return self._from_device(reply, packed, landing, at_leisure)

    def _from_host(self, leaves: Sequence[Leaf], packed: Packed, landing: torch.Tensor | None) -> list[torch.Tensor]:
        """Returns the outputs in a copy of the memory for outputs: `landing`, if it is large enough, or a new copy."""
        self.landing_bytes = self._memory_bytes
        if landing is None or landing.numel() < self.landing_bytes:
            landing = self._exchange.memory_for_copy(self.landing_bytes, packed)
            self._exchange.copy_outputs(landing)
        return [leaf.of(leaf.bytes(landing)) for leaf in leaves]

    def _from_device(
        self, reply: Called, packed: Packed, landing: torch.Tensor | None, at_leisure: bool
    ) -> list[torch.Tensor] | None:
        """Enqueues copies of the outputs to `landing` and the work that overwrites them. Returns the copies."""
        starts, end = [], 0
        for leaf in reply.leaves:
            starts.append(end)
            end += -(-leaf.nbytes // _ALIGNMENT) * _ALIGNMENT
        self.landing_bytes = end
        if landing is None or landing.numel() < end:
            if not at_leisure:
                return None
            landing = self._exchange.memory_for_copy(end, packed)
        self._exchange.keep_regions(reply.regions)
        pairs = zip(reply.leaves, reply.places, strict=True)
        sources = [self._source(leaf, place, packed) for leaf, place in pairs]
        copies = [
            leaf.of(landing[start : start + leaf.nbytes]) for leaf, start in zip(reply.leaves, starts, strict=True)
        ]
        for copy, source in zip(copies, sources, strict=True):
            copy.copy_(source)
        if self.kept is not None:
            self._overwrite([s for i, s in enumerate(sources) if i not in self.kept and not _is_input(reply.places[i])])
        if at_leisure:
            self._exchange.wait()
        return copies

    def _overwrite(self, sources: Sequence[torch.Tensor]) -> None:
        for source in sources:
            if source.numel():
                source.fill_(tensors.poison_of(source.dtype))

    def _source(self, leaf: Leaf, place: Place | None, packed: Packed) -> torch.Tensor:
        """Returns an output tensor where it lies, as a view of shared memory. Raises Unreadable if it cannot.

        Of the memory for inputs only the part that the judge writes anew for each call, that of `packed`, can hold one.
        """
        if place is None:
            return self._exchange.output(leaf)
        tensors.check_in_range((place.offset, *place.stride), "its place")
        region = self._region(place.region)
        region = region[: packed.size] if _is_input(place) else region
        itemsize = leaf.dtype.itemsize
        if len(place.stride) != len(leaf.shape) or place.offset % itemsize:
            raise tensors.Unreadable("its place is invalid")
        if place.offset + reach(leaf.shape, place.stride) * itemsize > region.numel():
            raise tensors.Unreadable("it reaches past its region of memory")
        typed = region[place.offset :]
        typed = typed[: typed.numel() // itemsize * itemsize].view(leaf.dtype)
        return typed.as_strided(leaf.shape, place.stride, typed.storage_offset())

    def _region(self, number: int) -> torch.Tensor:
        """Returns a region of the worker's memory, which is mapped if it is not yet. Raises Unreadable if it cannot."""
        region = self._exchange.region(number)
        if region is not None:
            return region
        descriptors: list[int] = []
        sizes: list[int] = []
        received: list[Received[Exported]] = []
        try:
            while not received or received[-1].message.left > 0:
                if (left_s := self._end - time.monotonic()) <= 0:
                    raise tensors.Unreadable(f"access to its memory takes longer than {self._limit_s:g} s")
                received.append(self._export(number, len(sizes), left_s))
                descriptors += received[-1].descriptors
                sizes += received[-1].message.sizes
                if not received[-1].message.sizes or len(sizes) > _MOST_PIECES:
                    raise tensors.Unreadable("it lies in no region of memory")
            self._exchange.add_region(number, descriptors, sizes)
        finally:
            for each in received:
                each.close()
        region = self._exchange.region(number)
        assert region is not None
        return region


def _is_input(place: Place | None) -> bool:
    """Returns whether an output lies in the memory for inputs, which the judge writes anew for each call."""
    return place is not None and place.region == INPUTS_REGION


@contextmanager
def _readable() -> Iterator[None]:
    """Raises Fault if the code in the `with` block finds that the worker described an invalid output."""
    try:
        yield
    except (tensors.Unreadable, RecursionError) as error:
        raise Fault(Status.CRASHED, f"The process described an invalid output: {error}.") from None
