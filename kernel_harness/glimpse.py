"""A few bytes of an output, read before the judge's clock stops: the copy that is made afterwards must hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernel_harness.tensors import Leaf

POSITIONS = 1024
"""Bytes of each tensor that are looked at; of a smaller one all.

Who is done with all but a share f of a tensor is caught with a probability of 1 - (1 - f)^1024 in each call: a
hundredth left for later escapes three calls in 100,000. Copying all of it instead would be noise in the clock.
"""


class Glimpse:
    """The bytes at random places of some leaves, as they are in `memory` now."""

    def __init__(self, leaves: Sequence[Leaf], memory: Any) -> None:
        rng, seen = np.random.default_rng(), np.frombuffer(memory, np.uint8)
        self._at = [
            rng.integers(0, leaf.nbytes, POSITIONS) if leaf.nbytes > POSITIONS else np.arange(leaf.nbytes)
            for leaf in leaves
        ]
        self._bytes = [seen[leaf.offset + at] for leaf, at in zip(leaves, self._at, strict=True)]

    def agrees(self, copies: Sequence[torch.Tensor]) -> bool:
        """Whether the leaves' bytes, copied in the same order, hold what was seen."""
        pairs = zip(copies, self._at, self._bytes, strict=True)
        return all(np.array_equal(copy.numpy()[at], before) for copy, at, before in pairs)
