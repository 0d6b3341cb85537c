"""Draws the inputs of timed calls, and writes them to memory that the judge shares with the worker processes."""

from __future__ import annotations

import mmap
import random
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from kernel_harness.checking.cases import Reference
from kernel_harness.device import Device
from kernel_harness.ipc.channel import SharedBuffer
from kernel_harness.ipc.packed import Packed, buffer_of, mask_, pack
from kernel_harness.ipc.tensors import write
from kernel_harness.problem.problem import OWN

# The offset of the inputs in the buffer is one of these at random. A candidate therefore cannot recognise inputs by
# their address.
LEADS_BYTES = (0, 4096)


# One timed round in OTHERS_EVERY has inputs of another distribution than the problem's own.
OTHERS_EVERY = 8


@dataclass(frozen=True)
class DrawnInputs:
    """One set of inputs, and the shared memory that contains it. The next `Inputs.draw` may overwrite that memory.

    `distribution` is the name of the distribution from which the inputs were drawn.
    """

    packed: Packed
    buffer: SharedBuffer
    distribution: str = OWN


def distributions(others: Sequence[str], rng: random.Random) -> Iterator[str]:
    """Yields the distribution of the inputs of each timed round, without end.

    One round of each OTHERS_EVERY, at a random position, has one of the distributions `others`, all others have the
    problem's own. A candidate then cannot tell from the values that a call is not timed.
    """
    while True:
        block = [OWN] * OTHERS_EVERY
        if others:
            block[rng.randrange(OTHERS_EVERY)] = rng.choice(others)
        yield from block


class Inputs:
    """A source of inputs that no process has seen before. All arms of a round read one set from one shared buffer.

    A GPU copies inputs from the buffer to its own memory. The buffer is then the same for all sets, because worker
    processes pin it (lock it into physical memory): pinning a new buffer for each call would add noise to the judge's
    times. Before inputs are written to that buffer, they are masked (combined with random bits), and workers get the
    key only when the call begins. Otherwise, work that a candidate left waiting on the device could read the inputs
    early. On the emulated device, calls work on the buffer itself (`Device.in_place`), so each set gets a new buffer
    and is not masked.
    """

    def __init__(self, reference: Reference, device: Device) -> None:
        self.reference, self._in_place = reference, device.in_place
        self._buffer: SharedBuffer | None = None
        # Private memory of the judge. It is kept between draws: allocating new pages takes longer than writing to old
        # ones.
        self._unmasked = bytearray()

    def draw(self, lead_bytes: int | None = None, distribution: str = OWN) -> DrawnInputs:
        """Draws new inputs from `distribution`, and writes them `lead_bytes` bytes after the shared buffer's start.

        If `lead_bytes` is None, one of LEADS_BYTES is chosen at random, so that a candidate cannot recognise inputs by
        their address.
        """
        lead_bytes = secrets.choice(LEADS_BYTES) if lead_bytes is None else lead_bytes
        packed = pack(self.reference.problem.inputs(secrets.randbits(48), distribution), lead_bytes)
        if self._in_place:
            self.close()
            self._buffer = buffer_of(packed)
            return DrawnInputs(packed, self._buffer, distribution)
        if self._buffer is None or self._buffer.size < packed.size:
            self.close()
            self._buffer = SharedBuffer(packed.size + max(LEADS_BYTES) - lead_bytes)
            self._unmasked = bytearray(self._buffer.size)
        key = secrets.randbits(62)
        write(self._unmasked, packed.leaves, packed.tensors, packed.size)
        # Readers unmask the whole buffer, so the whole buffer is masked.
        masked = mask_(_words(self._unmasked).to(self.reference.device, copy=True), key)
        _words(self._buffer.memory).copy_(masked)
        return DrawnInputs(replace(packed, key=key), self._buffer, distribution)

    def close(self) -> None:
        """Releases the shared buffer. Safe to call twice."""
        if self._buffer is not None:
            self._buffer.close()
        self._buffer = None


def _words(memory: mmap.mmap | bytearray) -> torch.Tensor:
    return torch.frombuffer(memory, dtype=torch.int64)
