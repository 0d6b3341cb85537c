"""Prepares a call's inputs for a worker: places each tensor in shared memory, copies it there and hides its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from kernel_harness.ipc import tensors
from kernel_harness.ipc.channel import SharedBuffer
from kernel_harness.ipc.tensors import Leaf, write

# The number of 64-bit words that are masked at a time. It limits the memory for random words to 32 MiB.
_CHUNK_WORDS = 1 << 22
_SMALLEST_WORD = -(1 << 63)


@dataclass(frozen=True)
class Packed:
    """Inputs for a worker, with the place that each tensor has in a buffer of `size` bytes.

    `structure` is the nesting and the plain values of the inputs. `tensors` are their tensors. `leaves` describes each
    tensor in the buffer: dtype, shape, strides and offset. `key` removes the random bits that hide the buffer's bytes
    (see `mask_`); it is None if the bytes are not hidden.
    """

    structure: Any
    tensors: tuple[torch.Tensor, ...]
    leaves: tuple[Leaf, ...]
    size: int
    key: int | None = None


def pack(inputs: Any, lead_bytes: int = 0) -> Packed:
    """Finds a place in a buffer for each tensor of `inputs`. Copies no tensor.

    `lead_bytes` moves all tensors towards the buffer's end; it must be a multiple of tensors.CANARY_BYTES. Raises
    tensors.Unreadable if an input has a type that cannot be sent to another process.
    """
    structure, found = tensors.flatten(inputs)
    leaves, size = tensors.layout(found, lead_bytes)
    return Packed(structure, tuple(found), tuple(leaves), size)


def buffer_of(packed: Packed) -> SharedBuffer:
    """Returns new shared memory with the tensors of `packed`, not hidden, and known bytes around each tensor."""
    buffer = SharedBuffer(packed.size)
    write(buffer.memory, packed.leaves, packed.tensors, packed.size)
    return buffer


def mask_(words: torch.Tensor, key: int) -> torch.Tensor:
    """Hides the bytes of `words`, a flat int64 tensor, in place by XOR with random bits, and returns `words`.

    A second call with the same `key` restores the bytes. A candidate may be able to read shared inputs before its call,
    but hidden inputs are useless to it until the judge sends the key. The random bits come from the generator of the
    tensor's device, seeded with the key. On CUDA this is Philox (Salmon et al. 2011, doi:10.1145/2063384.2063405).
    There is no known way to compute Philox's key, and with the key the remaining random bits, from the bytes that a
    candidate knows, such as those between the tensors. The CPU's generator, used when a CPU emulates CUDA, gives no
    such protection. The random bits depend on the tensor's length, so a part of the tensor cannot be restored alone.
    """
    generator = torch.Generator(words.device).manual_seed(key)
    for part in words.split(_CHUNK_WORDS):
        part.bitwise_xor_(torch.empty_like(part).random_(_SMALLEST_WORD, None, generator=generator))
    return words
