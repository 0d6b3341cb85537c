"""Inputs that lie where a candidate could see them before its call, unreadable until it is told a key."""

from __future__ import annotations

import torch

# Of 64-bit words at a time: what is drawn for them takes 32 MB at most, however large the inputs are.
_CHUNK = 1 << 22
_LEAST = -(1 << 63)


def mask_(words: torch.Tensor, key: int) -> torch.Tensor:
    """Flips bits of int64 words in place, on whatever device they are; done twice on the same device it is undone.

    They are xored with what the device's generator draws from the key: on CUDA, Philox (Salmon et al. 2011,
    doi:10.1145/2063384.2063405). Whoever knows some words, as those between the inputs, has no known way to tell the
    key and thereby the others from them; of a CPU's generator, which a rehearsal draws from, that cannot be said.
    What is drawn for a word depends on how many there are.
    """
    generator = torch.Generator(words.device).manual_seed(key)
    for part in words.split(_CHUNK):
        part.bitwise_xor_(torch.empty_like(part).random_(_LEAST, None, generator=generator))
    return words
