"""Maps where an output is wrong: a coarse grid with the share of wrong elements in each cell."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch

MAX_ROWS, MAX_COLUMNS = 32, 64
# A run keeps the maps of all wrong answers. To save memory, all maps share these float objects. Equal rows of one map
# are one object, too.
_THOUSANDTHS = tuple(i / 1000 for i in range(1001))


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
