"""The coarse error map: each element counts in exactly one cell; 0 means no error in a cell, 1 means only errors."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_harness.checking.wrong_elements import MAX_COLUMNS, MAX_ROWS, error_map

torch.set_num_threads(1)
SHAPES = st.lists(st.integers(1, 150), min_size=0, max_size=3).filter(lambda s: torch.Size(s).numel() < 200_000)


def edges(size: int, cells: int) -> list[int]:
    """The first lines of the cells, by the formula in ErrorMap's docstring."""
    return [-(-i * size // cells) for i in range(cells + 1)]


def test_a_small_matrix_has_a_cell_for_each_element() -> None:
    mask = torch.tensor([[True, False, False], [False, False, True]])
    found = error_map(mask)

    assert found is not None
    assert found.cells == ((1, 0, 0), (0, 0, 1))


def test_a_mask_without_elements_has_no_map() -> None:
    assert error_map(torch.zeros(0, 3, dtype=torch.bool)) is None


def test_leading_dimensions_are_rows() -> None:
    mask = torch.zeros(2, 3, 5, dtype=torch.bool)
    mask[1, 2, 4] = True
    found = error_map(mask)

    assert found is not None
    assert (found.shape, found.rows, found.columns) == ((2, 3, 5), 6, 5)
    assert found.cells[5][4] == 1


def test_cells_have_equal_sizes_if_a_divisor_allows_it() -> None:
    found = error_map(torch.ones(48, 2048, dtype=torch.bool))

    assert found is not None
    assert (len(found.cells), len(found.cells[0])) == (24, 64)


def test_equal_cells_and_equal_rows_share_one_object() -> None:
    """This saves memory: a run keeps the maps of all wrong answers."""
    mask = torch.zeros(96, 192, dtype=torch.bool)
    mask[:, 100:] = True
    mask[::8] = True
    found = error_map(mask)

    assert found is not None
    for parts in (found.cells, [cell for row in found.cells for cell in row]):
        assert len({id(part) for part in parts}) == len(set(parts)) > 1


@settings(max_examples=60)
@given(SHAPES, st.floats(0, 1), st.integers(0, 9))
def test_a_cell_holds_the_share_of_its_rows_and_columns(shape: list[int], density: float, seed: int) -> None:
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < density
    found = error_map(mask)

    assert found is not None
    height, width = len(found.cells), len(found.cells[0])
    for cells, lines, most in ((height, found.rows, MAX_ROWS), (width, found.columns, MAX_COLUMNS)):
        assert cells == lines if lines <= most else most // 2 < cells <= most
    matrix, rows, columns = mask.reshape(found.rows, -1), edges(found.rows, height), edges(found.columns, width)
    for i in range(height):
        for j in range(width):
            part = matrix[rows[i] : rows[i + 1], columns[j] : columns[j + 1]].double()
            assert abs(found.cells[i][j] - float(part.mean())) < 1e-3
            assert (found.cells[i][j] == 0) == (not part.any())
            assert (found.cells[i][j] == 1) == bool(part.all())
