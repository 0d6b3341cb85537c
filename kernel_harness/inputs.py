"""What timed calls are given."""

from __future__ import annotations

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


class Inputs:
    """Inputs that nobody has seen, and the memory from which all who are called get the same bytes.

    A device with memory of its own copies from one buffer, which its processes pin once: to pin it for each call is
    noise in the judge's clock. What lies there before a call is masked, or work that a candidate left waiting on the
    device could begin with it. Where calls work on the buffer itself, each drawing has one of its own.
    """

    def __init__(self, reference: Reference, device: Device) -> None:
        self.reference, self._in_place = reference, device.in_place
        self._buffer: SharedBuffer | None = None

    def draw(self, lead_bytes: int = 0) -> tuple[Packed, SharedBuffer]:
        """New ones; those before are gone."""
        packed = pack(self.reference.problem.inputs(secrets.randbits(48)), lead_bytes)
        if self._buffer is None or self._in_place or self._buffer.size < packed.size:
            self.close()
            self._buffer = SharedBuffer(packed.size + max(LEADS_BYTES) - lead_bytes)
        write(self._buffer.memory, packed.leaves, packed.tensors, packed.size)
        if not self._in_place:
            packed = replace(packed, key=secrets.randbits(62))
            self._mask(packed)
        return packed, self._buffer

    def _mask(self, packed: Packed) -> None:
        assert self._buffer is not None and packed.key is not None
        words = torch.frombuffer(self._buffer.memory, dtype=torch.int64)
        words.copy_(mask_(words.to(self.reference.device, copy=True), packed.key))

    def close(self) -> None:
        """Gives the memory back."""
        if self._buffer is not None:
            self._buffer.close()
        self._buffer = None
