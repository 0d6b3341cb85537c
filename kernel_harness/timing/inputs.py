"""Draws the inputs of timed calls."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernel_harness.checking.cases import Reference
from kernel_harness.ipc.packed import Packed
from kernel_harness.problem.problem import OWN

# The offset of the inputs in the buffer is one of these at random. A candidate therefore cannot recognise inputs by
# their address.
LEADS_BYTES = (0, 4096)


# One timed round in OTHERS_EVERY has inputs of another distribution than the problem's own.
OTHERS_EVERY = 8


@dataclass(frozen=True)
class DrawnInputs:
    """One set of inputs, and `distribution`, the name of the distribution from which the inputs were drawn."""

    packed: Packed
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


def draw(reference: Reference, lead_bytes: int | None = None, distribution: str = OWN) -> DrawnInputs:
    """Draws inputs at the problem's size that no process has seen before, in memory that only the judge can reach.

    The tensors are placed `lead_bytes` bytes after the start of the buffer to which they will be written. If
    `lead_bytes` is None, one of LEADS_BYTES is chosen at random, so that a candidate cannot recognise inputs by their
    address.
    """
    lead_bytes = secrets.choice(LEADS_BYTES) if lead_bytes is None else lead_bytes
    return DrawnInputs(reference.drawn(secrets.randbits(48), distribution, lead_bytes), distribution)
