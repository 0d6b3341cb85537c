"""Changes a problem's own inputs in a few places only, so that a kernel that looks at a sample takes them for its own.

A kernel that reads a part of its inputs where these look like the problem's own is wrong on such inputs, because what
it leaves out decides the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

SPIKES = "spikes"
"""A few numbers have four times the largest magnitude, and any sign."""
OUTLIERS = "outliers"
"""One number is so large that it decides a sum, a mean or a norm of all numbers."""
STRETCH = "stretch"
"""The numbers in one place, a 64th of all, are larger than elsewhere, but within the range of the problem's own."""
RARE = "rare"
"""The largest or the smallest of a few different numbers, such as classes or ratings, is rare."""
LOOKALIKES = (SPIKES, OUTLIERS, STRETCH, RARE)

# The most numbers of a tensor that become spikes, and their size in terms of the largest magnitude.
_MOST_SPIKES, _SPIKE = 4, 4.0
# The outlier is at least this share of the sum of all magnitudes: 20 times the largest tolerance of such a sum.
_OUTLIER_SHARE = 2e-3
_STRETCH_SHARE = 64
# A number in the stretch is replaced by the largest of so many random ones.
_LARGEST_OF = 4
# A tensor with at most so many different numbers in a sample holds choices (signs, classes), not measurements.
MOST_CHOICES, _SAMPLE = 32, 4096
# A number of choices becomes rare: one in so many is left, and at least one. Smaller tensors are left as they are.
_RARE_IN = 1024
# The elements of a tensor that are read at a time.
_PART = 1 << 26


def is_measured(value: torch.Tensor) -> bool:
    """Returns whether a tensor holds floating-point numbers that are measurements.

    A sample of it must have more than MOST_CHOICES different numbers, and not all of them may be whole.
    """
    if not value.is_floating_point():
        return False
    sample = _sample(value)
    return sample.unique().numel() > MOST_CHOICES and not bool((sample == sample.round()).all())


def is_in_no_order(value: torch.Tensor) -> bool:
    """Returns whether the numbers of a tensor neither ascend nor descend along a dimension, as those of offsets do."""
    steps = [value.diff(dim=d) for d, size in enumerate(value.shape) if size > 1]
    return not any(bool((each >= 0).all()) or bool((each <= 0).all()) for each in steps)


def _are_choices(value: torch.Tensor) -> bool:
    """Returns whether a tensor holds a few different numbers in no order, so that others of them may replace each.

    Numbers that ascend or descend along a dimension have a meaning together, as those of a mask or of offsets.
    """
    if value.dtype is torch.bool or value.is_complex() or value.numel() < _RARE_IN:
        return False
    if not 1 < _sample(value).unique().numel() <= MOST_CHOICES or _is_symmetric(value):
        return False
    return is_in_no_order(value)


def _sample(value: torch.Tensor) -> torch.Tensor:
    return value.reshape(-1)[:: max(1, value.numel() // _SAMPLE)].double()


def lookalikes(inputs: Sequence[Any], distribution: str, generator: torch.Generator) -> list[Any]:
    """Returns the inputs with a few numbers changed as `distribution` says (LOOKALIKES).

    `generator` is on the CPU. Symmetric matrices stay symmetric. RARE changes tensors of choices (`_are_choices`). The
    others leave zeros as they are, and change tensors of measured numbers only (`is_measured`): all of them, or one of
    them for OUTLIERS, so that a kernel that reads half of the numbers misses the outlier half of the time.
    """
    if distribution == RARE:
        return [
            _with_rare(value, generator) if isinstance(value, torch.Tensor) and _are_choices(value) else value
            for value in inputs
        ]
    measured = [i for i, value in enumerate(inputs) if isinstance(value, torch.Tensor) and is_measured(value)]
    if distribution == OUTLIERS and measured:
        measured = [measured[int(torch.randint(len(measured), (), generator=generator))]]
    change = {SPIKES: _with_spikes, OUTLIERS: _with_outlier, STRETCH: _stretched}[distribution]
    return [change(value, generator) if i in measured else value for i, value in enumerate(inputs)]


def _with_spikes(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    count = int(torch.randint(1, _MOST_SPIKES + 1, (), generator=generator))
    signs = torch.randint(0, 2, (count,), generator=generator) * 2 - 1
    return _replaced(value, _SPIKE * _largest(value), signs, generator)


def _with_outlier(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    total = sum(float(part.abs().sum(dtype=torch.float64)) for part in value.reshape(-1).split(_PART))
    size = max(_OUTLIER_SHARE * total, _SPIKE * _largest(value))
    return _replaced(value, size, torch.ones(1), generator)


def _largest(value: torch.Tensor) -> float:
    return max(float(part.abs().max()) for part in value.reshape(-1).split(_PART))


def _replaced(value: torch.Tensor, size: float, signs: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Returns `value` with numbers at random places replaced by ones of `size` to twice this, times one of `signs`."""
    places = torch.randint(value.numel(), signs.shape, generator=generator)
    sizes = min(size, torch.finfo(value.dtype).max / 64) * (1 + torch.rand(signs.shape, generator=generator))
    at = places_in(value, places)
    out, new = value.clone(), (signs * sizes).to(value) * value[at].sign()
    out[at] = new
    if _is_symmetric(value):
        out.mT[at] = new
    return out


def _stretched(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Returns `value` with a stretch of its first dimension of more than one index in which numbers are larger.

    The stretch is one index at least. A tensor that has only one dimension of more than one index may be of any length.
    """
    dim = next((d for d, size in enumerate(value.shape) if size > 1), 0)
    size = value.shape[dim]
    if size < 2 or _is_symmetric(value):
        return value
    length = max(1, size // _STRETCH_SHARE)
    starts = torch.randint(0, size - length + 1, (_LARGEST_OF,), generator=generator).tolist()
    out = value.clone()
    stretch = out.narrow(dim, starts[0], length)
    for start in starts[1:]:
        other = value.narrow(dim, start, length)
        stretch.copy_(torch.where((stretch == 0) | (other == 0), stretch, torch.maximum(stretch, other)))
    return out


def _with_rare(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Returns `value` with most of its largest numbers, or of its smallest ones, replaced by others of its numbers."""
    flat = value.reshape(-1)
    rare = flat.amax() if torch.randint(2, (), generator=generator) else flat.amin()
    others = flat[flat != rare]
    drawn = torch.randint(len(others), flat.shape, generator=generator).to(value.device)
    kept = torch.randint(flat.numel(), (-(-flat.numel() // _RARE_IN),), generator=generator).to(value.device)
    replaced = torch.where(flat == rare, others[drawn], flat)
    replaced[kept] = rare
    out = value.clone()
    out.copy_(replaced.view(value.shape))
    return out


def _is_symmetric(value: torch.Tensor) -> bool:
    return value.ndim > 1 and value.shape[-1] == value.shape[-2] and bool(torch.equal(value, value.mT))


def places_in(value: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Returns the indices of the elements `places` of `value`, which are counted in row-major order, by dimension.

    `torch.unravel_index` would import sympy, which takes a second.
    """
    left, indices = places.to(value.device), list[torch.Tensor]()
    for size in reversed(value.shape):
        indices.insert(0, left % size)
        left = left // size
    return tuple(indices)
