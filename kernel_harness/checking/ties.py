"""Recognises outputs that are indices of a sort, a top-k or an extremum, and indices that select equal numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch


def alike(got: torch.Tensor, expected: torch.Tensor, inputs: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Returns where the indices `got` are as right as `expected`, as a mask; None if `expected` are no such indices.

    The indices of equal numbers may come in any order: torch promises none. So an index is right if it selects the same
    number of the input as the expected index. If no expected index occurs twice in a row, none of `got` may. An input
    and a dimension belong to `expected` if the indices select sorted numbers, or the maximum or the minimum, in each
    row. `got` and `expected` have the same shape and dtype.
    """
    if expected.is_floating_point() or expected.is_complex() or expected.dtype is torch.bool or not expected.numel():
        return None
    for values, dim, squeezed in _sources(expected, inputs):
        right, own = (each.long().unsqueeze(dim) if squeezed else each.long() for each in (expected, got))
        selected = values.gather(dim, right)
        if not _is_sorted_or_extreme(selected, values, dim):
            continue
        inside = (own >= 0) & (own < values.shape[dim])
        same = inside & (values.gather(dim, own.where(inside, right)) == selected)
        if not _repeats(right, dim).any():
            same &= ~_repeats(own, dim)
        return same.squeeze(dim) if squeezed else same
    return None


def _sources(expected: torch.Tensor, inputs: Sequence[torch.Tensor]) -> Iterator[tuple[torch.Tensor, int, bool]]:
    """Yields the inputs and dimensions along which `expected` may be indices, and whether it lacks this dimension."""
    least, most = int(expected.min()), int(expected.max())
    for each in inputs:
        for dim in range(each.ndim):
            others = [size for i, size in enumerate(each.shape) if i != dim]
            squeezed = list(expected.shape) == others
            along = expected.ndim == each.ndim and [s for i, s in enumerate(expected.shape) if i != dim] == others
            if (squeezed or along) and not each.is_complex() and least >= 0 and most < each.shape[dim]:
                yield each.to(expected.device), dim, squeezed


def _is_sorted_or_extreme(selected: torch.Tensor, values: torch.Tensor, dim: int) -> bool:
    if selected.shape[dim] == 1:
        return any(torch.equal(selected, best(values, dim, keepdim=True)) for best in (torch.amax, torch.amin))
    before, after = selected.narrow(dim, 0, selected.shape[dim] - 1), selected.narrow(dim, 1, selected.shape[dim] - 1)
    return bool((before >= after).all() or (before <= after).all())


def _repeats(indices: torch.Tensor, dim: int) -> torch.Tensor:
    """Returns a mask that is true in each row along `dim` in which an index occurs twice."""
    ordered = indices.sort(dim).values
    size = indices.shape[dim] - 1
    twice = (ordered.narrow(dim, 0, size) == ordered.narrow(dim, 1, size)).any(dim, keepdim=True)
    return twice.expand_as(indices)
