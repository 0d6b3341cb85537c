"""Recognises outputs that are indices of a sort, a top-k or an extremum, and indices that select equal numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from kernel_harness.core.precision import Change

# So many random orders of the inputs are tried.
_ORDERS = 3


@dataclass(frozen=True)
class _Source:
    """An input along whose dimension `dim` an output may be indices, and whether the output lacks this dimension."""

    values: torch.Tensor
    dim: int
    squeezed: bool

    def select(self, indices: torch.Tensor) -> torch.Tensor:
        """Returns the numbers at the indices, which must be inside."""
        return self.values.gather(self.dim, indices)


def alike(
    got: torch.Tensor,
    expected: torch.Tensor,
    inputs: Sequence[torch.Tensor],
    changed: Callable[[Change], torch.Tensor | None] = lambda change: None,
) -> torch.Tensor | None:
    """Returns where the indices `got` are as right as `expected`, as a mask; None if `expected` are no such indices.

    The indices of equal numbers may come in any order: torch promises none. So an index is right if it selects the same
    number as the expected index, in every input that has the shape for it: a mask alone allows many indices, of which
    the scores beside it exclude most. If no expected index occurs twice in a row, none of `got` may.

    An input and a dimension belong to `expected` if the indices select sorted numbers, or the maximum or the minimum,
    in each row, and if not all rows are constant. `changed` returns the right answer to changed inputs, or None if that
    is unknown. If the inputs are reordered along the dimension, indices select the same numbers of them again; the
    number of zeros in a row, for example, does not. `got` and `expected` have the same shape and dtype.
    """
    if expected.is_floating_point() or expected.is_complex() or expected.dtype is torch.bool or not expected.numel():
        return None
    candidates = list(_sources(expected, inputs))
    found = [each for each in candidates if _belongs(each, expected) and _follows(each, expected, changed)]
    if not found:
        return None
    same = torch.ones_like(expected, dtype=torch.bool)
    for source in found:
        for each in candidates:
            if (each.dim, each.squeezed) == (source.dim, source.squeezed):
                same &= _selects_same(each, got, expected)
    return same


def _selects_same(source: _Source, got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    right, own = _along(source, expected), _along(source, got)
    inside = (own >= 0) & (own < source.values.shape[source.dim])
    same = inside & (source.select(own.where(inside, right)) == source.select(right))
    if not _repeats(right, source.dim).any():
        same &= ~_repeats(own, source.dim)
    return same.squeeze(source.dim) if source.squeezed else same


def _along(source: _Source, indices: torch.Tensor) -> torch.Tensor:
    return indices.long().unsqueeze(source.dim) if source.squeezed else indices.long()


def _sources(expected: torch.Tensor, inputs: Sequence[torch.Tensor]) -> Iterator[_Source]:
    """Yields the inputs and dimensions along which `expected` may be indices."""
    least, most = int(expected.min()), int(expected.max())
    for each in inputs:
        for dim in range(each.ndim):
            others = [size for i, size in enumerate(each.shape) if i != dim]
            squeezed = list(expected.shape) == others
            along = expected.ndim == each.ndim and [s for i, s in enumerate(expected.shape) if i != dim] == others
            if (squeezed or along) and not each.is_complex() and least >= 0 and most < each.shape[dim]:
                yield _Source(each.to(expected.device), dim, squeezed)


def _belongs(source: _Source, expected: torch.Tensor) -> bool:
    """Returns whether the indices select sorted numbers or an extremum in each row, and not all rows are constant."""
    values, dim = source.values, source.dim
    selected = source.select(_along(source, expected))
    largest, smallest = (best(values, dim, keepdim=True) for best in (torch.amax, torch.amin))
    if torch.equal(largest, smallest):
        return False
    if selected.shape[dim] == 1:
        return any(torch.equal(selected, best) for best in (largest, smallest))
    before, after = selected.narrow(dim, 0, selected.shape[dim] - 1), selected.narrow(dim, 1, selected.shape[dim] - 1)
    return bool((before >= after).all() or (before <= after).all())


def _follows(source: _Source, expected: torch.Tensor, changed: Callable[[Change], torch.Tensor | None]) -> bool:
    """Returns whether the answers to inputs in other orders select the same numbers; True if these are unknown."""
    values, dim = source.values, source.dim
    selected = source.select(_along(source, expected))
    for seed in range(_ORDERS):
        order = torch.randperm(values.shape[dim], generator=torch.Generator().manual_seed(seed)).to(values.device)

        def reordered(each: torch.Tensor, order: torch.Tensor = order) -> torch.Tensor:
            return each.index_select(dim, order.to(each.device)) if each.shape == values.shape else each

        answer = changed(reordered)
        if answer is None or answer.shape != expected.shape:
            continue
        again = _along(source, answer.to(expected.device))
        inside = bool(((again >= 0) & (again < len(order))).all())
        if not inside or not torch.equal(values.gather(dim, order[again]), selected):
            return False
    return True


def _repeats(indices: torch.Tensor, dim: int) -> torch.Tensor:
    """Returns a mask that is true in each row along `dim` in which an index occurs twice."""
    ordered = indices.sort(dim).values
    size = indices.shape[dim] - 1
    twice = (ordered.narrow(dim, 0, size) == ordered.narrow(dim, 1, size)).any(dim, keepdim=True)
    return twice.expand_as(indices)
