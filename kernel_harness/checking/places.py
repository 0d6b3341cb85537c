"""Random places in tensors: what a sample of them shows about all elements, and where a tensor repeats itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations, permutations

import torch

# A share that a sample shows is too large with this probability at most.
_RISK = 1e-3
# The largest step of one window after the other, in elements.
_MOST_STEPS = 16

Index = tuple[torch.Tensor, ...]
"""The places of elements in a tensor: a tensor of int64 indices for each dimension, on the CPU."""


def at_random(shape: torch.Size, count: int, generator: torch.Generator) -> Index:
    """Returns `count` random places in a tensor of the shape `shape`, which must have elements."""
    return tuple(torch.randint(n, (count,), generator=generator) for n in shape)


def values(tensor: torch.Tensor, index: Index) -> torch.Tensor:
    """Returns a copy of the elements of `tensor` at the places `index`, on the CPU. The tensor itself is not copied."""
    found = tensor[tuple(each.to(tensor.device) for each in index)] if index else tensor.reshape(1)
    return found.cpu()


def same(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Returns for each element whether `a` and `b` are equal there. NaN equals NaN."""
    return (a == b) | ((a != a) & (b != b))


def share(found: int, tried: int) -> float:
    """Returns the least share of all elements that `found` of `tried` random ones show, with an error rate of 0.1%.

    The one-sided lower bound of Clopper and Pearson (Biometrika 26, 1934), found by bisection.
    """
    if not found:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _at_least(found, tried, middle) <= _RISK else (low, middle)
    return low


def _at_least(found: int, tried: int, p: float) -> float:
    """Returns the probability of `found` or more successes in `tried` independent trials of probability `p`."""
    if p in (0.0, 1.0):
        return p
    logs = (
        math.lgamma(tried + 1) - math.lgamma(k + 1) - math.lgamma(tried - k + 1)
        + k * math.log(p) + (tried - k) * math.log1p(-p)
        for k in range(found, tried + 1)
    )  # fmt: skip
    return math.fsum(map(math.exp, logs))


def along(shape: torch.Size, index: Index, generator: torch.Generator) -> Iterator[tuple[int, Index]]:
    """Yields each dimension of several indices, and other places, which differ from `index` in that dimension only."""
    for dim, n in enumerate(shape):
        if n > 1:
            step = torch.randint(1, n, index[dim].shape, generator=generator)
            yield dim, _moved(shape, index, {dim: step})


def windows(shape: torch.Size, index: Index) -> Iterator[tuple[Index, Index]]:
    """Yields pairs of places that hold equal numbers in a view with overlapping windows, such as `x.unfold(0, 5, 2)`.

    Two dimensions differ between the places of a pair, one forward and one backward. Both are some of `index`, moved.
    """
    for a, b in permutations([dim for dim, n in enumerate(shape) if n > 1], 2):
        for step in range(1, _MOST_STEPS + 1):
            inside = (index[a] + 1 < shape[a]) & (index[b] >= step)
            if inside.any():
                one = tuple(each[inside] for each in index)
                moved = {a: torch.ones_like(one[a]), b: torch.full_like(one[b], -step)}
                yield one, _moved(shape, one, moved)


def repeats(shape: torch.Size, index: Index) -> Iterator[Index]:
    """Yields places that hold the same numbers as `index` in a tensor that repeats itself.

    They are the next place along a dimension, the place of the same number in a tensor that was tiled 2, 3, 4, ... or
    16 times, or that is symmetric in two dimensions.
    """
    for dim, n in enumerate(shape):
        if n > 1:
            steps = {1, *(n // parts for parts in (2, 3, 4, 5, 6, 7, 8, 16) if n % parts == 0)}
            for step in steps:
                yield _moved(shape, index, {dim: torch.full_like(index[dim], step)})
    for a, b in combinations(range(len(shape)), 2):
        if shape[a] == shape[b] > 1:
            swapped = list(index)
            swapped[a], swapped[b] = index[b], index[a]
            yield tuple(swapped)


def _moved(shape: torch.Size, index: Index, steps: dict[int, torch.Tensor]) -> Index:
    """Returns `index` with steps added in some dimensions. Behind the last index of a dimension comes the first."""
    return tuple((each + steps[dim]) % shape[dim] if dim in steps else each for dim, each in enumerate(index))
