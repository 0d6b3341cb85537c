"""Draws the inputs of timed calls."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernel_harness.checking.cases import Reference
from kernel_harness.ipc.packed import Packed
from kernel_harness.problem.problem import OWN

# One timed round in OTHERS_EVERY has inputs of another distribution than the problem's own.
OTHERS_EVERY = 8


@dataclass(frozen=True)
class DrawnInputs:
    """One set of inputs, and `distribution`, the name of the distribution from which the inputs were drawn."""

    packed: Packed
    distribution: str = OWN


def distributions(others: Sequence[str], rng: random.Random) -> Iterator[str]:
    """Yields the distribution of the inputs of each timed round, without end.

    One round of each OTHERS_EVERY rounds, at a random position, has one of the distributions in `others`. The other
    rounds have the problem's own distribution, and so have all if `others` is empty. A candidate then cannot tell from
    the values that a call is not timed.
    """
    while True:
        block = [OWN] * OTHERS_EVERY
        if others:
            block[rng.randrange(OTHERS_EVERY)] = rng.choice(others)
        yield from block


def draw(reference: Reference, distribution: str = OWN) -> DrawnInputs:
    """Draws inputs at the problem's size that no process has seen before, in memory that only the judge can reach.

    A worker gets them at the address of earlier inputs, so an address does not tell which inputs they are.
    """
    return DrawnInputs(reference.new_inputs(distribution), distribution)
