"""Compares tensors element by element. Finds error norms, elements beyond a limit, and mismatches of NaN and Inf.

The tensors are split into slices, which are converted to float64 one at a time. The module `verify` chooses the limits
for the error of an element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from kernel_harness.core.precision import is_inexact

CHUNK, CUDA_CHUNK = 1 << 20, 1 << 26
"""The largest number of elements that are compared at a time, on the CPU and on a GPU.

Tensors are compared in slices because a float64 copy of a whole output would take more memory than the output. A GPU is
idle between slices, so its slices are larger.
"""


@dataclass(frozen=True)
class Errors:
    """The errors of one output tensor against the truth.

    The truth is the reference's output in float64, or its plain output if no float64 output can be computed.

    `max_abs`: the largest absolute error. `relative`: the Frobenius norm of the output's error divided by the Frobenius
    norm of the truth. `reference_relative`: the Frobenius norm of the reference's error divided by the Frobenius norm
    of the truth. `rms`, `error_rms` and `reference_error_rms`: the root mean squares of the truth, of the output's
    error and of the reference's error. These three leave out elements that are zero both in the truth and in the
    reference's output. A ReLU makes many such zeros, which would lower the means although no other element is smaller.
    `max_abs`, `relative` and `reference_relative` are None if no element is finite. The relative errors are None also
    if the truth is zero and the error is not.
    """

    max_abs: float | None
    relative: float | None
    reference_relative: float | None
    rms: float
    error_rms: float = 0.0
    reference_error_rms: float = 0.0


@dataclass(frozen=True)
class Limit:
    """The largest allowed error of each element: |got - truth| <= atol + rtol * |truth| + factor * scale.

    If `rtol`, `atol` and `factor` are zero, the elements must be equal.
    """

    truth: torch.Tensor
    rtol: float = 0.0
    atol: float = 0.0
    factor: float = 0.0
    scale: torch.Tensor | float = 0.0


def measure(got: torch.Tensor, want: torch.Tensor, truth: torch.Tensor) -> Errors:
    """Returns the errors of `got` and of the reference's output `want` against `truth`. All three have the same shape.

    Only elements that are finite in all three tensors count. Values are divided by the largest absolute value in
    `truth` before they are squared, so that the squares do not overflow.
    """
    largest, peak, count, active = 0.0, 0.0, 0, 0
    for parts in chunks(got, want, truth):
        out, reference, true = finite(*parts)
        if out.numel():
            count += out.numel()
            active += int(((true != 0) | (reference != 0)).sum())
            largest = max(largest, float((out - true).abs().max()))
            peak = max(peak, float(true.abs().max()))
    if count == 0:
        return Errors(None, None, None, 0.0)
    squares = torch.zeros(3, dtype=torch.float64)
    for parts in chunks(got, want, truth):
        out, reference, true = finite(*parts)
        sums = [((x - y) / (peak or 1.0)).abs().square().sum() for x, y in ((out, true), (reference, true))]
        squares += torch.stack([*sums, (true / (peak or 1.0)).abs().square().sum()]).cpu()
    error, reference_error, norm = squares.sqrt().tolist()
    rms = [size * (peak or 1.0) / math.sqrt(active or 1) for size in (norm, error, reference_error)]
    if norm == 0:
        return Errors(largest, 0.0 if error == 0 else None, 0.0 if reference_error == 0 else None, *rms)
    return Errors(largest, error / norm, reference_error / norm, *rms)


def exceeds(got: torch.Tensor, want: torch.Tensor, limit: Limit) -> torch.Tensor:
    """Returns a boolean tensor that is True where the error of the element of `got` exceeds the limit.

    An element never exceeds the limit if its value in the reference's output `want` is not finite. Where `limit.truth`
    is not finite, `want` replaces it. Integers and booleans must be equal to the truth.
    """
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


def non_finite_mismatch(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Returns a boolean tensor: True where one tensor is NaN, +Inf or -Inf and the other tensor differs."""
    return _mask(_mismatch, got, want)


def _mismatch(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    other = got.isnan() != want.isnan()
    if got.is_complex():
        return other | (got.isinf() != want.isinf())
    return other | ((got.isinf() | want.isinf()) & (got != want))


def finite(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Returns the elements of the tensors that are finite in all of them."""
    keep = torch.stack([t.isfinite() for t in tensors]).all(dim=0)
    return [t[keep] for t in tensors] if not keep.all() else list(tensors)


def chunks(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yields slices of the tensors: flat, of at most CHUNK elements, in float64 or complex128.

    The tensors are broadcast to the shape of the first tensor and moved to its device. A tensor without dimensions
    stays one.
    """
    first = tensors[0]
    wide = torch.complex128 if any(t.is_complex() for t in tensors) else torch.float64
    flat = [t if t.ndim == 0 else t.expand(first.shape).reshape(-1) for t in tensors]
    size = CUDA_CHUNK if first.is_cuda else CHUNK
    for start in range(0, first.numel(), size):
        parts = (t if t.ndim == 0 else t[start : start + size] for t in flat)
        yield tuple(p.to(device=first.device, dtype=wide) for p in parts)


def _mask(test: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> torch.Tensor:
    parts = [test(*chunk).reshape(-1) for chunk in chunks(*tensors)]
    flat = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.bool, device=tensors[0].device)
    return flat.reshape(tensors[0].shape)
