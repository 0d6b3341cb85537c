"""What calls are given: bytes in shared memory."""

from __future__ import annotations

import mmap
import secrets
from dataclasses import replace

import torch

from kernel_harness.cases import Packed, Reference, pack
from kernel_harness.channel import SharedBuffer
from kernel_harness.device import Device
from kernel_harness.mask import mask_
from kernel_harness.tensors import write

# Inputs come to lie where earlier ones lay, and elsewhere: whoever goes by addresses is wrong about both.
LEADS_BYTES = (0, 4096)


def buffer_of(packed: Packed) -> SharedBuffer:
    """Shared memory that holds the inputs, with canaries between them."""
    buffer = SharedBuffer(packed.size)
    write(buffer.memory, packed.leaves, packed.tensors, packed.size)
    return buffer


class Inputs:
    """Inputs that nobody has seen, and the memory from which all who are called get the same bytes.

    A device with memory of its own copies from one buffer, which its processes pin once: to pin it for each call is
    noise in the judge's clock. What comes to lie there is masked before it does, or work that a candidate left waiting
    on the device could begin with it. Where calls work on the buffer itself, each drawing has one of its own.
    """

    def __init__(self, reference: Reference, device: Device) -> None:
        self.reference, self._in_place = reference, device.in_place
        self._buffer: SharedBuffer | None = None
        self._unmasked = bytearray()  # nobody else's; kept, as new pages take longer than what is written to them

    def draw(self, lead_bytes: int | None = None) -> tuple[Packed, SharedBuffer]:
        """New ones, at an address that is drawn, too, if none is named; those before are gone."""
        lead_bytes = secrets.choice(LEADS_BYTES) if lead_bytes is None else lead_bytes
        packed = pack(self.reference.problem.inputs(secrets.randbits(48)), lead_bytes)
        if self._in_place:
            self.close()
            self._buffer = buffer_of(packed)
            return packed, self._buffer
        if self._buffer is None or self._buffer.size < packed.size:
            self.close()
            self._buffer = SharedBuffer(packed.size + max(LEADS_BYTES) - lead_bytes)
            self._unmasked = bytearray(self._buffer.size)
        key = secrets.randbits(62)
        write(self._unmasked, packed.leaves, packed.tensors, packed.size)
        # All of the buffer, as its readers unmask it.
        masked = mask_(_words(self._unmasked).to(self.reference.device, copy=True), key)
        _words(self._buffer.memory).copy_(masked)
        return replace(packed, key=key), self._buffer

    def close(self) -> None:
        """Gives the memory back."""
        if self._buffer is not None:
            self._buffer.close()
        self._buffer = None


def _words(memory: mmap.mmap | bytearray) -> torch.Tensor:
    return torch.frombuffer(memory, dtype=torch.int64)
