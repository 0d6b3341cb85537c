"""A few bytes of an output, read before the judge's clock stops: the copy that is made afterwards must hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernel_harness.tensors import Leaf

POSITIONS = 1024
"""Bytes that are looked at.

Who is done with all but a share f of the output is caught with a probability of 1 - (1 - f)^1024 in each call: a
hundredth left for later escapes three calls in 100,000. Copying all of it instead would be noise in the clock.
"""


class Glimpse:
    """The bytes at random places of some leaves, as they are in `memory` now."""

    def __init__(self, leaves: Sequence[Leaf], memory: Any) -> None:
        sizes = np.array([leaf.nbytes for leaf in leaves], dtype=np.int64)
        starts = np.array([leaf.offset for leaf in leaves], dtype=np.int64)
        ends = sizes.cumsum()
        places = np.random.default_rng().integers(0, max(1, int(sizes.sum())), POSITIONS if sizes.any() else 0)
        self._leaf = np.searchsorted(ends, places, side="right")
        self._at = places - (ends - sizes)[self._leaf]
        self._bytes = np.frombuffer(memory, np.uint8)[starts[self._leaf] + self._at]

    def agrees(self, copies: Sequence[torch.Tensor]) -> bool:
        """Whether the leaves' bytes, copied in the same order, hold what was seen."""
        return all(
            np.array_equal(copy.numpy()[self._at[self._leaf == i]], self._bytes[self._leaf == i])
            for i, copy in enumerate(copies)
        )
