"""Where the wrong elements of an output are, seen from afar: shares per cell of a grid that fits a screen.

What is wrong, and why, is found elsewhere; so is how the map is drawn.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch

MAX_ROWS, MAX_COLUMNS = 32, 64
# A run keeps the maps of all its wrong answers: their cells are these, and rows that are alike are one.
_THOUSANDTHS = tuple(i / 1000 for i in range(1001))


@dataclass(frozen=True)
class ErrorMap:
    """An output of `shape` as a matrix of rows x columns: leading dimensions are rows, a vector is one row.

    `cells` are at most 32 x 64 shares in [0, 1] of wrong elements. Cell (i, j) of h x w cells stands for the rows
    ceil(i * rows / h) to below ceil((i + 1) * rows / h), and the columns alike.
    """

    shape: tuple[int, ...]
    rows: int
    columns: int
    cells: tuple[tuple[float, ...], ...]


def error_map(mask: torch.Tensor) -> ErrorMap | None:
    """The map of a mask of wrong elements, of any shape; None where there are no elements."""
    if not mask.numel():
        return None
    columns = mask.shape[-1] if mask.ndim else 1
    matrix = mask.reshape(-1, columns)
    row_edges, column_edges = _edges(matrix.shape[0], MAX_ROWS), _edges(columns, MAX_COLUMNS)
    cells, alike = [], dict[tuple[float, ...], tuple[float, ...]]()
    for top, bottom in itertools.pairwise(row_edges):
        wrong = matrix[top:bottom].sum(dim=0).cumsum(dim=0).tolist()
        upto = [0, *(wrong[edge - 1] for edge in column_edges[1:])]
        sizes = [(bottom - top) * (b - a) for a, b in itertools.pairwise(column_edges)]
        row = tuple(map(_share, (b - a for a, b in itertools.pairwise(upto)), sizes))
        cells.append(alike.setdefault(row, row))
    return ErrorMap(tuple(mask.shape), matrix.shape[0], columns, tuple(cells))


def _edges(size: int, most: int) -> list[int]:
    count = cell_count(size, most)
    return [-(-i * size // count) for i in range(count + 1)]


def cell_count(size: int, most: int) -> int:
    """At most `most` cells for `size` lines; of equal size, if that takes no fewer than half as many.

    Then a tile's edge, which is a multiple of something, is a cell's edge where it can be.
    """
    if size <= most:
        return size
    return next((count for count in range(most, most // 2, -1) if size % count == 0), most)


def _share(wrong: int, size: int) -> float:
    """To three digits, rounded so that only 0 is nothing and only 1 is everything."""
    rounded = math.ceil if wrong < size / 2 else math.floor
    return _THOUSANDTHS[rounded(1000 * wrong / size)]
