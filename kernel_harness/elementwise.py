"""Two tensors element by element: how far apart they are, which elements are beyond a limit, which are of another kind.

Float64 copies are made of a slice at a time. Which limit is the right one is decided elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from kernel_harness.precision import is_inexact

CHUNK = 1 << 20
"""Elements compared at a time: float64 copies of a whole output would cost more than the output."""


@dataclass(frozen=True)
class Errors:
    """How far an output is from the truth (the oracle, else the reference), and how far the reference is."""

    max_abs: float | None
    relative: float | None
    reference_relative: float | None
    rms: float


@dataclass(frozen=True)
class Limit:
    """|got - truth| <= atol + rtol * |truth| + factor * scale, for every element; all zero: exact."""

    truth: torch.Tensor
    rtol: float = 0.0
    atol: float = 0.0
    factor: float = 0.0
    scale: torch.Tensor | float = 0.0


def measure(got: torch.Tensor, want: torch.Tensor, truth: torch.Tensor) -> Errors:
    """Errors over the elements that are finite everywhere; squares are taken of multiples of the largest."""

    def finite(*tensors: torch.Tensor) -> list[torch.Tensor]:
        keep = torch.stack([t.isfinite() for t in tensors]).all(dim=0)
        return [t[keep] for t in tensors] if not keep.all() else list(tensors)

    largest, peak, count = 0.0, 0.0, 0
    for parts in _chunks(got, want, truth):
        out, _, true = finite(*parts)
        if out.numel():
            count += out.numel()
            largest = max(largest, float((out - true).abs().max()))
            peak = max(peak, float(true.abs().max()))
    if count == 0:
        return Errors(None, None, None, 0.0)
    squares = torch.zeros(3, dtype=torch.float64)
    for parts in _chunks(got, want, truth):
        out, reference, true = finite(*parts)
        sums = [((x - y) / (peak or 1.0)).abs().square().sum() for x, y in ((out, true), (reference, true))]
        squares += torch.stack([*sums, (true / (peak or 1.0)).abs().square().sum()]).cpu()
    error, reference_error, norm = squares.sqrt().tolist()
    if norm == 0:
        return Errors(largest, 0.0 if error == 0 else None, 0.0 if reference_error == 0 else None, 0.0)
    return Errors(largest, error / norm, reference_error / norm, peak * norm / math.sqrt(count))


def beyond(got: torch.Tensor, want: torch.Tensor, limit: Limit) -> torch.Tensor:
    """The mask of the elements beyond the limit; of inexact ones not those where the reference is not finite."""
    if not is_inexact(got.dtype):
        return got != limit.truth.to(got.device)
    scale = limit.scale if isinstance(limit.scale, torch.Tensor) else torch.tensor(limit.scale)

    def far(got: torch.Tensor, want: torch.Tensor, truth: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        truth = torch.where(truth.isfinite(), truth, want)
        size = truth.abs()
        scale = torch.where(scale.isfinite(), scale.abs(), size)
        allowed = limit.atol + limit.rtol * size + limit.factor * scale
        return ~((got - truth).abs() <= allowed) & want.isfinite()

    return _mask(far, got, want, limit.truth, scale)


def of_another_kind(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """The mask of the elements that are NaN, +Inf or -Inf where the reference is something else."""
    return _mask(_other_kind, got, want)


def _other_kind(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    other = got.isnan() != want.isnan()
    if got.is_complex():
        return other | (got.isinf() != want.isinf())
    return other | ((got.isinf() | want.isinf()) & (got != want))


def _chunks(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Slices of tensors of the first one's shape (or broadcast to it), flat, wide, on its device."""
    first = tensors[0]
    wide = torch.complex128 if any(t.is_complex() for t in tensors) else torch.float64
    flat = [t if t.ndim == 0 else t.expand(first.shape).reshape(-1) for t in tensors]
    for start in range(0, first.numel(), CHUNK):
        parts = (t if t.ndim == 0 else t[start : start + CHUNK] for t in flat)
        yield tuple(p.to(device=first.device, dtype=wide) for p in parts)


def _mask(test: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> torch.Tensor:
    parts = [test(*chunk).reshape(-1) for chunk in _chunks(*tensors)]
    flat = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.bool, device=tensors[0].device)
    return flat.reshape(tensors[0].shape)
