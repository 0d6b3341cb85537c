"""The wrong elements of an output, the first of them as numbers, and a coarse map that shows where they are."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from kernel_harness.checking.elementwise import count

MAX_ROWS, MAX_COLUMNS = 32, 64
# A run keeps the maps of all wrong answers. To save memory, all maps share these float objects. Equal rows of one map
# are one object, too.
_THOUSANDTHS = tuple(i / 1000 for i in range(1001))


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


@dataclass(frozen=True)
class ErrorMap:
    """A map of the wrong elements of an output.

    The output has the shape `shape` and is read as a matrix of `rows` x `columns`: the last dimension gives the
    columns, all other dimensions together give the rows. `cells` is a grid of at most 32 x 64 cells, and each value is
    the share of wrong elements in that cell, in [0, 1]. In a grid of h x w cells, cell (i, j) covers the rows from
    ceil(i * rows / h) up to, but not including, ceil((i + 1) * rows / h). It covers the columns from
    ceil(j * columns / w) up to, but not including, ceil((j + 1) * columns / w).
    """

    shape: tuple[int, ...]
    rows: int
    columns: int
    cells: tuple[tuple[float, ...], ...]


def error_map(mask: torch.Tensor) -> ErrorMap | None:
    """Builds the map from `mask`, which is True where the output is wrong; None if `mask` has no elements."""
    if not mask.numel():
        return None
    columns = mask.shape[-1] if mask.ndim else 1
    matrix = mask.reshape(-1, columns)
    row_edges, column_edges = _edges(matrix.shape[0], MAX_ROWS), _edges(columns, MAX_COLUMNS)
    cells, alike = [], dict[tuple[float, ...], tuple[float, ...]]()
    for top, bottom in itertools.pairwise(row_edges):
        wrong = matrix[top:bottom].sum(dim=0).cumsum(dim=0)
        upto = [0, *wrong[[edge - 1 for edge in column_edges[1:]]].tolist()]
        sizes = [(bottom - top) * (b - a) for a, b in itertools.pairwise(column_edges)]
        row = tuple(map(_share, (b - a for a, b in itertools.pairwise(upto)), sizes))
        cells.append(alike.setdefault(row, row))
    return ErrorMap(tuple(mask.shape), matrix.shape[0], columns, tuple(cells))


def _edges(size: int, most: int) -> list[int]:
    count = cell_count(size, most)
    return [-(-i * size // count) for i in range(count + 1)]


def cell_count(size: int, most: int) -> int:
    """Returns the number of map cells for `size` rows or columns of the output: `size` itself if it is at most `most`.

    Otherwise returns the largest divisor of `size` that is above `most` / 2 and at most `most`, or `most` if there is
    none. With a divisor all cells have the same size, so the edge of a kernel's tile is more often the edge of a cell.
    """
    if size <= most:
        return size
    return next((count for count in range(most, most // 2, -1) if size % count == 0), most)


def _share(wrong: int, size: int) -> float:
    """Returns the share `wrong` / `size`, rounded to thousandths. `wrong` and `size` are numbers of elements.

    The rounding gives 0 only if no element is wrong, and 1 only if all elements are wrong.
    """
    rounded = math.ceil if wrong < size / 2 else math.floor
    return _THOUSANDTHS[rounded(1000 * wrong / size)]
