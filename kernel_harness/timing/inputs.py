"""Draws the inputs of timed calls."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernel_harness.checking.cases import Reference
from kernel_harness.ipc.packed import Packed
from kernel_harness.problem.distributions import OWN
from kernel_harness.problem.lookalikes import LOOKALIKES

# Of OTHERS_EVERY timed rounds, one has inputs of another distribution than the problem's own, and LOOKALIKES_EVERY have
# inputs that look like the problem's own.
OTHERS_EVERY, LOOKALIKES_EVERY = 8, 3


@dataclass(frozen=True)
class DrawnInputs:
    """One set of inputs, and `distribution`, the name of the distribution from which the inputs were drawn."""

    packed: Packed
    distribution: str = OWN


def distributions(others: Sequence[str], rng: random.Random) -> Iterator[str]:
    """Yields the distribution of the inputs of each timed round, without end.

    Of OTHERS_EVERY rounds, at random positions, one has one of the distributions in `others` that do not look like the
    problem's own inputs, and LOOKALIKES_EVERY have one of those that do (`lookalikes`). The other rounds have the
    problem's own distribution. A candidate then cannot tell from the values that a call is not timed, nor from a sample
    of them what it may leave out.
    """
    alike = [d for d in others if d in LOOKALIKES]
    unlike = [d for d in others if d not in LOOKALIKES]
    while True:
        block = [rng.choice(unlike)] if unlike else []
        block += [rng.choice(alike) for _ in range(LOOKALIKES_EVERY if alike else 0)]
        block += [OWN] * (OTHERS_EVERY - len(block))
        yield from rng.sample(block, len(block))


def draw(reference: Reference, distribution: str = OWN) -> DrawnInputs:
    """Draws inputs at the problem's size that no process has seen before, in memory that only the judge can reach.

    A worker gets them at the address of earlier inputs, so an address does not tell which inputs they are.
    """
    return DrawnInputs(reference.new_inputs(distribution), distribution)
