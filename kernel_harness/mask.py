"""Inputs that lie where a candidate could see them before its call, unreadable until it is told a key."""

from __future__ import annotations

import torch

# Of 64-bit words at a time: what mixing them takes is then some 100 MB, however large the inputs are.
_CHUNK = 1 << 22


def mask_(words: torch.Tensor, key: int) -> torch.Tensor:
    """Flips bits of int64 words in place, on whatever device they are; done twice it is undone.

    Word i is xored with SplitMix64 of key + i (Steele, Lea and Flood 2014, doi:10.1145/2660193.2660195): whoever does
    not know the key cannot guess inputs before the clock runs, and has no use for them after.
    """
    for start in range(0, words.numel(), _CHUNK):
        part = words[start : start + _CHUNK]
        part.bitwise_xor_(_mixed(torch.arange(start, start + part.numel(), device=words.device).add_(key)))
    return words


def _mixed(counters: torch.Tensor) -> torch.Tensor:
    z = counters.mul_(_signed(0x9E3779B97F4A7C15))
    z.bitwise_xor_(_shifted(z, 30)).mul_(_signed(0xBF58476D1CE4E5B9))
    z.bitwise_xor_(_shifted(z, 27)).mul_(_signed(0x94D049BB133111EB))
    return z.bitwise_xor_(_shifted(z, 31))


def _shifted(z: torch.Tensor, bits: int) -> torch.Tensor:
    """To the right, as a number without a sign."""
    return (z >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def _signed(constant: int) -> int:
    """As torch takes a number of 64 bits."""
    return constant - (1 << 64)
