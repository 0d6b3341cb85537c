"""Copies the outputs of a worker's calls into memory that the worker cannot reach."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch

from kernel_harness.core.status import Status
from kernel_harness.device.exports import INPUTS_REGION
from kernel_harness.ipc import tensors
from kernel_harness.ipc.envelope import Received
from kernel_harness.ipc.messages import Called, Exported, Place, Purpose
from kernel_harness.ipc.packed import Packed
from kernel_harness.ipc.tensors import Leaf
from kernel_harness.workers.exchange import Exchange
from kernel_harness.workers.faults import Fault
from kernel_harness.workers.placed_outputs import PlacedOutput, PlacedOutputs

# Outputs are copied only if they take at most _MOST_OUTPUT times the memory of right outputs, and _LITTLE_OUTPUT_BYTES
# more. Larger ones have another shape or dtype, which the verdict needs alone.
_MOST_OUTPUT, _LITTLE_OUTPUT_BYTES = 4, 1 << 26
_MOST_DIMENSIONS = 25  # that torch can work with on a GPU
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
        self._named: Called | None = None  # the reply of the last timed call on a device
        self._expected: PlacedOutputs | None = None
        self._regions: tuple[int, ...] = ()  # that still exist in the worker

    def reserve(self) -> None:
        """Shares memory for outputs that is large enough for outputs like those of the last call."""
        self._exchange.reserve(Purpose.OUTPUTS, self._memory_bytes)

    def take(self) -> Found:
        """Returns what `read` or `place` has found, and forgets it. The judge's turn is over."""
        found, self._found, self._expected = self._found, (None, ()), None
        self._exchange.keep_regions(self._regions)  # unmapping waits for the device
        return found

    def read(self, reply: Called, packed: Packed, landing: torch.Tensor | None = None) -> None:
        """Copies the outputs that `reply` describes, for `take`. The call is done.

        `landing` is flat memory for the copy. For memory of the host it already holds the first bytes of the memory for
        outputs. Outputs that are far larger than right ones, or too large for the device, are not copied, nor are those
        of more than 25 dimensions on a GPU: they become tensors on torch's "meta" device, which have a shape and no
        values. Raises Fault if `reply` is malformed, and torch.OutOfMemoryError if the device has too little memory for
        right outputs.
        """
        with self._reading():
            copies = None
            if not self._is_uncopyable(reply):
                try:
                    copies = self._copies(reply, packed, landing)
                except torch.OutOfMemoryError:
                    if self.right_bytes is None or _bytes_of(reply) <= self.right_bytes:
                        raise
            self._find(reply, [leaf.without_values() for leaf in reply.leaves] if copies is None else copies)

    def place(self, reply: Called, packed: Packed, landing: torch.Tensor) -> PlacedOutputs | None:
        """Returns the outputs that `reply` names where they lie on the device, and their copies in `landing`.

        `take` returns the copies, too. Returns None, and copies nothing, if that needs other memory than `landing`, a
        copy to the host, or copies by the worker that it could not make. Raises Fault if `reply` is malformed.
        """
        before, self._named = self._named, reply
        with self._reading():
            copied = self._needed(reply)
            if self._is_uncopyable(reply) or not self._exchange.holds(Purpose.OUTPUTS, copied):
                return None
            if not landing.is_cuda or landing.numel() < self.landing_bytes:
                return None
            if self._expected is not None and before is not None and _is_alike(before, reply):
                return self._expected
            return self._placed(reply, packed, landing)

    def expect(self, packed: Packed, landing: torch.Tensor) -> PlacedOutputs | None:
        """Returns what `place` will return if the next reply names the same places as the one before, else None.

        Returns None, too, if the judge does not map all of these places.
        """
        reply = self._named
        regions = {place.region for place in reply.places if place} if reply else set()
        if reply is None or any(self._exchange.region(number) is None for number in regions):
            return None
        with suppress(Fault):  # the memory for outputs may be smaller now
            self._expected = self.place(reply, packed, landing)
        return self._expected

    def _is_uncopyable(self, reply: Called) -> bool:
        """Returns whether outputs are far larger than right ones, or have too many dimensions to be copied on a GPU."""
        if self._exchange.turn is not None and any(len(leaf.shape) > _MOST_DIMENSIONS for leaf in reply.leaves):
            return True
        return self.right_bytes is not None and (
            _bytes_of(reply) > _MOST_OUTPUT * self.right_bytes + _LITTLE_OUTPUT_BYTES
        )

    def _needed(self, reply: Called) -> int:
        """Returns the bytes that outputs need in the memory for outputs, and sets `landing_bytes`."""
        if len(reply.places) != len(reply.leaves):
            raise tensors.Unreadable("the places are not those of the outputs")
        copied = [leaf for leaf, place in zip(reply.leaves, reply.places, strict=True) if place is None]
        if self._exchange.turn is None and len(copied) < len(reply.leaves):
            raise tensors.Unreadable("it lies in memory of the process, of which the judge maps none")
        self._memory_bytes = self._exchange.needed(copied)
        on_host = self._exchange.turn is None
        self.landing_bytes = self._memory_bytes if on_host else sum(_aligned(leaf.nbytes) for leaf in reply.leaves)
        return self._memory_bytes

    def _copies(self, reply: Called, packed: Packed, landing: torch.Tensor | None) -> list[torch.Tensor]:
        needed = self._needed(reply)
        fits = self._exchange.holds(Purpose.OUTPUTS, needed)
        if not fits:
            self._exchange.reserve(Purpose.OUTPUTS, needed)
            self._fetch()
        on_host = self._exchange.turn is None
        new = landing is None or landing.numel() < self.landing_bytes or (on_host and not fits)
        landing = self._exchange.memory_for_copy(self.landing_bytes, packed) if landing is None or new else landing
        if on_host:
            if new:
                self._exchange.copy_outputs(landing)
            return [leaf.of(leaf.bytes(landing)) for leaf in reply.leaves]
        outputs = self._placed(reply, packed, landing)
        outputs.copy()
        outputs.overwrite()
        self._exchange.wait()
        return outputs.copies

    def _placed(self, reply: Called, packed: Packed, landing: torch.Tensor) -> PlacedOutputs:
        """Returns the outputs of a worker on a device, and finds their copies, which are in `landing`."""
        self._regions = reply.regions
        placed, start = list[PlacedOutput](), 0
        for i, (leaf, place) in enumerate(zip(reply.leaves, reply.places, strict=True)):
            copy = leaf.of(landing[start : start + leaf.nbytes])
            start += _aligned(leaf.nbytes)
            there = self._exchange.output(leaf) if place is None else self._seen(leaf, place, packed)
            in_inputs = _at(leaf, place) if place is not None and place.region == INPUTS_REGION else None
            overwritten = self.kept is not None and i not in self.kept and in_inputs is None
            placed.append(PlacedOutput(there, copy, overwritten, in_inputs))
        outputs = PlacedOutputs(placed)
        self._find(reply, outputs.copies)
        return outputs

    def _find(self, reply: Called, copies: Sequence[torch.Tensor]) -> None:
        structure, found = tensors.flatten_output(tensors.unflatten(reply.structure, list(copies)))
        self._found = structure, tuple(found)

    def _seen(self, leaf: Leaf, place: Place, packed: Packed) -> torch.Tensor:
        """Returns an output tensor where it lies, as a view of shared memory. Raises Unreadable if it cannot.

        Of the memory for inputs only the part that the judge writes anew for each call, that of `packed`, can hold one.
        """
        tensors.check_in_range((place.offset, *place.stride), "its place")
        region = self._region(place.region)
        region = region[: packed.size] if place.region == INPUTS_REGION else region
        if len(place.stride) != len(leaf.shape) or place.offset % leaf.dtype.itemsize:
            raise tensors.Unreadable("its place is invalid")
        if place.offset + _at(leaf, place).nbytes > region.numel():
            raise tensors.Unreadable("it reaches past its region of memory")
        return _at(leaf, place).view(region)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Raises Fault if the code in the `with` block finds that the worker described an invalid output.

        Access to the worker's memory is given within the block, in at most the time limit.
        """
        self._end = time.monotonic() + self._limit_s
        try:
            yield
        except (tensors.Unreadable, RecursionError) as error:
            raise Fault(Status.CRASHED, f"The process described an invalid output: {error}.") from None

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


def _is_alike(one: Called, other: Called) -> bool:
    """Returns whether two replies name outputs of the same structure at the same places."""
    return all(getattr(one, name) == getattr(other, name) for name in ("structure", "leaves", "places", "regions"))


def _at(leaf: Leaf, place: Place) -> Leaf:
    """Returns the description of an output in its region of memory."""
    return Leaf(leaf.dtype, leaf.shape, place.stride, place.offset, storage=place.offset)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _bytes_of(reply: Called) -> int:
    return sum(leaf.nbytes for leaf in reply.leaves)
