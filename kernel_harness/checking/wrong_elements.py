"""The wrong elements of an output, and the first of them as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from kernel_harness.checking.elementwise import count


@dataclass(frozen=True)
class Mismatch:
    """One wrong element of an output: its index, its value and the expected value.

    If the element is complex, the values are those of the part (real or imaginary) with the larger error. `index` then
    has one more entry: 0 for the real part, 1 for the imaginary part.
    """

    index: tuple[int, ...]
    got: float
    expected: float


@dataclass(frozen=True)
class Wrong:
    """A wrong output `got`, the reference's output `expected`, and the boolean tensor `mask`, all of one shape.

    `mask` is True at the wrong elements.
    """

    got: torch.Tensor
    expected: torch.Tensor
    mask: torch.Tensor

    @cached_property
    def count(self) -> int:
        """Returns the number of wrong elements."""
        return count(self.mask)

    @cached_property
    def values(self) -> torch.Tensor:
        """Returns the values of the wrong elements, as a tensor of one dimension."""
        return self.got[self.mask]

    @cached_property
    def wanted(self) -> torch.Tensor:
        """Returns the expected values of the wrong elements, as a tensor of one dimension."""
        return self.expected[self.mask]

    @cached_property
    def explained(self) -> torch.Tensor:
        """Returns a boolean tensor that is True at the elements which the kernel may have failed to write.

        These are the wrong elements, and elements that are zero and should be zero.
        """
        return self.mask | ((self.expected == 0) & (self.got == 0))


def first_mismatches(wrong: Wrong, limit: int = 5) -> tuple[Mismatch, ...]:
    """Returns the first `limit` wrong elements, in row-major order."""
    flat, found = wrong.mask.reshape(-1), list[int]()
    for start in range(0, flat.numel(), 1 << 20):
        if len(found) >= limit:
            break
        found += [start + int(i) for i in flat[start : start + (1 << 20)].nonzero()[:limit, 0]]
    return tuple(_mismatch(wrong, i) for i in found[:limit])


def _mismatch(wrong: Wrong, flat: int) -> Mismatch:
    index = tuple(map(int, np.unravel_index(flat, wrong.mask.shape)))
    got, expected = wrong.got[index], wrong.expected[index]
    if not got.is_complex():
        return Mismatch(index, float(got), float(expected))
    parts = torch.view_as_real(torch.stack((got, expected)).to(torch.complex128)).tolist()
    part = max((0, 1), key=lambda p: abs(parts[0][p] - parts[1][p]))
    return Mismatch((*index, part), parts[0][part], parts[1][part])
