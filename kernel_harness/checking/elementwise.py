"""Compares tensors element by element. Finds error norms, elements beyond a limit, and mismatches of NaN and Inf.

The tensors are split into slices, which are converted to float64 one at a time. The module `verify` chooses the limits
for the error of an element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from kernel_harness.core.precision import is_inexact

_PIECE = 1 << 26  # elements that are read at a time where nothing is converted to float64
_SAMPLE = 1 << 14  # elements of which `typical` takes the median
CHUNK, CUDA_CHUNK = 1 << 20, 1 << 23
"""The largest number of elements that are compared at a time, on the CPU and on a GPU.

Tensors are compared in slices because a float64 copy of a whole output would take more memory than the output. A GPU is
idle between slices, so its slices are larger.
"""


@dataclass(frozen=True)
class Errors:
    """The errors of one output against the truth. Only elements that are finite in the three tensors count.

    The three tensors are the output, the reference's output and the truth. The truth is the reference's output in
    float64, or its plain output if no float64 output can be computed.

    `max_abs`: the largest absolute error of the output. `relative`: the Frobenius norm of the output's error divided by
    the Frobenius norm of the truth. `reference_relative`: the Frobenius norm of the reference's error divided by the
    Frobenius norm of the truth. `rms`, `error_rms` and `reference_error_rms`: the Frobenius norms of the truth, of the
    output's error and of the reference's error, each divided by the square root of n. Here n is the number of elements
    that are not zero in the truth or in the reference's output. A ReLU makes many elements that are zero in both. They
    would lower these means. `max_abs`, `relative` and `reference_relative` are None if no element counts. A relative
    error is also None if the truth is zero everywhere and the error is not. `finite` is True only if every element of
    the three tensors is finite; False says nothing.
    """

    max_abs: float | None
    relative: float | None
    reference_relative: float | None
    rms: float
    error_rms: float = 0.0
    reference_error_rms: float = 0.0
    finite: bool = False


@dataclass(frozen=True)
class Limit:
    """The largest allowed error of each element: |got - truth| <= atol + rtol * |truth| + factor * |scale|.

    If `rtol`, `atol` and `factor` are zero, the elements must be equal. If `above` is not zero, an element whose
    magnitude in the truth is at most `above` exceeds the limit, whatever its error.
    """

    truth: torch.Tensor
    rtol: float = 0.0
    atol: float = 0.0
    factor: float = 0.0
    scale: torch.Tensor | float = 0.0
    above: float = 0.0


def measure(got: torch.Tensor, want: torch.Tensor, truth: torch.Tensor) -> Errors:
    """Returns the Errors of the output `got` and of the reference's output `want` against `truth`.

    The three tensors have the same shape. Only elements that are finite in all three count. If `_measure_finite` cannot
    compute the Errors, values are divided by the largest absolute value in `truth` before they are squared, so that
    the squares do not overflow. The norms are then multiplied by that value again.
    """
    if (quick := _measure_finite(got, want, truth)) is not None:
        return quick
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
    squares = torch.zeros(3, dtype=torch.float64)  # of the error, of the reference's error and of the truth
    for parts in chunks(got, want, truth):
        out, reference, true = finite(*parts)
        sums = [((x - y) / (peak or 1.0)).abs().square().sum() for x, y in ((out, true), (reference, true))]
        squares += torch.stack([*sums, (true / (peak or 1.0)).abs().square().sum()]).cpu()
    error, reference_error, norm = (squares.sqrt() * (peak or 1.0)).tolist()
    return _errors(largest, error, reference_error, norm, active)


def _measure_finite(got: torch.Tensor, want: torch.Tensor, truth: torch.Tensor) -> Errors | None:
    """Returns what `measure` returns, with a fifth of the memory accesses. Returns None in the cases left to `measure`.

    These cases are: `got` has no elements, an element of a tensor is not finite, a norm overflows float64, or `got` or
    `want` has another dtype than float32, float16 and bfloat16.
    """
    if not got.numel() or not {got.dtype, want.dtype} <= {torch.float32, torch.float16, torch.bfloat16}:
        return None
    norm = torch.linalg.vector_norm
    found = []
    for out, reference, narrow in pieces(got, want, truth):
        true = narrow.to(torch.float64)  # differences are then computed in float64, on a GPU without copies
        error = out - true
        reference_error = error.new_zeros(()) if want is truth else reference - true
        count = true.count_nonzero().to(torch.float64)
        found.append(torch.stack([norm(error, math.inf), norm(error), norm(reference_error), norm(true), count]))
    of_pieces = torch.stack(found).cpu()  # the only time that the host waits for a GPU
    if not of_pieces.isfinite().all():
        return None
    active = int(of_pieces[:, 4].sum())
    if active < got.numel():
        active = sum(int(((true != 0) | (reference != 0)).sum()) for reference, true in pieces(want, truth))
    error_norm, reference_error_norm, size = of_pieces[:, 1:4].square().sum(dim=0).sqrt().tolist()
    largest = float(of_pieces[:, 0].max())
    return replace(_errors(largest, error_norm, reference_error_norm, size, active), finite=True)


def _errors(largest: float, error: float, reference_error: float, norm: float, active: int) -> Errors:
    """Returns the Errors with the given largest absolute error and Frobenius norms.

    The norms are those of the output's error, of the reference's error and of the truth. `active` is the number of
    elements that count for the root mean squares.
    """
    root = math.sqrt(active or 1)
    rms = (norm / root, error / root, reference_error / root)
    if norm == 0:
        return Errors(largest, 0.0 if error == 0 else None, 0.0 if reference_error == 0 else None, *rms)
    return Errors(largest, error / norm, reference_error / norm, *rms)


def exceeds(got: torch.Tensor, want: torch.Tensor, limit: Limit) -> torch.Tensor:
    """Returns a boolean tensor that is True where the error of the element of `got` exceeds the limit.

    An element never exceeds the limit if its value in the reference's output `want` is not finite. Where `limit.truth`
    is not finite, `want` replaces it. Where `limit.scale` is not finite, the magnitude of the truth replaces it.
    Integers and booleans must be equal to the truth.
    """
    if not is_inexact(got.dtype):
        return got != limit.truth.to(got.device)
    if _all_near(got, limit):
        return torch.zeros_like(got, dtype=torch.bool)
    scale = limit.scale if isinstance(limit.scale, torch.Tensor) else torch.tensor(limit.scale)

    def far(got: torch.Tensor, want: torch.Tensor, truth: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        truth = torch.where(truth.isfinite(), truth, want)
        size = truth.abs()
        scale = torch.where(scale.isfinite(), scale.abs(), size)
        allowed = limit.atol + limit.rtol * size + limit.factor * scale
        near = (got - truth).abs() <= allowed
        return ~(near & (size > limit.above) if limit.above else near) & want.isfinite()

    return _mask(far, got, want, limit.truth, scale)


def largest_error(got: torch.Tensor, truth: torch.Tensor, where: torch.Tensor) -> float:
    """Returns the largest absolute error of the elements at which the boolean tensor `where` is True.

    Returns 0 if `where` is True nowhere. If any error is NaN, the result may be NaN. The three tensors have one shape.
    """
    errors = [((ours - true).abs() * at.ne(0)).max() for ours, true, at in chunks(got, truth, where) if at.any()]
    return float(torch.stack(errors).max()) if errors else 0.0


def typical(truth: torch.Tensor) -> float:
    """Returns the median magnitude of a sample of the elements, without zeros, NaN and infinities; 0 if none remains.

    The root mean square is not used, because a few large elements would determine it.
    """
    for (part,) in chunks(sample(truth, _SAMPLE) if truth.numel() > _SAMPLE else truth.reshape(-1)):
        sizes = part.abs()
        sizes = sizes[sizes.isfinite() & (sizes > 0)]
        return float(sizes.median()) if sizes.numel() else 0.0
    return 0.0


def sample(tensor: torch.Tensor, size: int) -> torch.Tensor:
    """Returns `size` elements of the tensor at random places, which are the same in each call.

    Elements at equal distances may all be in one column, such as the sums of a Fourier transform.
    """
    places = torch.randint(tensor.numel(), (size,), generator=torch.Generator().manual_seed(1))
    return tensor.reshape(-1)[places.to(tensor.device)]


def up_to(largest: float, truth: torch.Tensor) -> torch.Tensor:
    """Returns a boolean tensor that is True where the magnitude of the element of `truth` is at most `largest`."""
    return _mask(lambda part: part.abs() <= largest, truth)


def error_up_to(largest: float, got: torch.Tensor, truth: torch.Tensor) -> float | None:
    """Returns the root mean square of `got` - `truth` at the elements with a magnitude of at most `largest` in `truth`.

    Returns None if no element of `truth` has a magnitude above `largest`. Errors that are not finite do not count.
    """
    squares = count = more = 0.0
    for ours, true in chunks(got, truth):
        sizes = true.abs()
        usual = sizes <= largest
        more += int((sizes > largest).sum())
        errors = (ours[usual] - true[usual]).abs()
        errors = errors[errors.isfinite()]
        squares += float(errors.square().sum())
        count += errors.numel()
    return math.sqrt(squares / (count or 1)) if more else None


def _all_near(got: torch.Tensor, limit: Limit) -> bool:
    """Returns True only if every error is below half the limit without its `scale`, and every element is finite.

    Computes in float32, in a quarter of the memory accesses that `exceeds` needs otherwise. If the result is False, the
    errors may still be within the limit. An element with an infinite truth gives False, because its infinite error is
    not below its infinite limit.
    """
    truth = limit.truth
    if got.dtype is not torch.float32 or truth.dtype is not torch.float32 or got.device != truth.device or limit.above:
        return False
    if got.shape != truth.shape:
        return False
    near = [
        ((ours - true).abs_() < true.abs().mul_(limit.rtol / 2).add_(limit.atol / 2)).all()
        for ours, true in pieces(got, truth)
    ]
    return not near or bool(torch.stack(near).all())


def all_finite(tensor: torch.Tensor, device: torch.device | str | None = None) -> bool:
    """Returns whether no element of the tensor is NaN or infinite. Reads each element once.

    Pieces of the tensor are copied to `device` to be read; None reads them where they are.
    """
    if not is_inexact(tensor.dtype) or not tensor.numel():
        return True
    if tensor.element_size() == 1:  # torch implements few operators for float8
        return bool(tensor.float().isfinite().all())
    parts = tensor.reshape(-1).split(_PIECE)
    norms = [torch.linalg.vector_norm(piece.to(device or tensor.device), math.inf) for piece in parts]
    return bool(torch.stack(norms).isfinite().all())


def count(mask: torch.Tensor) -> int:
    """Returns how many elements of the boolean tensor `mask` are True.

    Counts in pieces: torch converts what it sums to int64 first, which takes eight times the memory of the mask.
    """
    return sum(int(piece.sum()) for piece in mask.reshape(-1).split(_PIECE))


def non_finite_mismatch(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    """Returns a boolean tensor: True where one tensor is NaN, +Inf or -Inf and the other tensor is not the same.

    Two NaN are the same, and so are two complex infinities.
    """
    plain = (torch.float32, torch.float64)
    if got.dtype in plain and want.dtype in plain and all_finite(got) and all_finite(want):
        return torch.zeros_like(got, dtype=torch.bool)
    return _mask(_mismatch, got, want)


def _mismatch(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    other = got.isnan() != want.isnan()
    if got.is_complex():
        return other | (got.isinf() != want.isinf())
    return other | ((got.isinf() | want.isinf()) & (got != want))


def finite(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Returns, for each of the tensors, its elements at the positions where all of the tensors are finite.

    The tensors have the same shape. If they are finite everywhere, they are returned as they are, otherwise flat.
    """
    keep = torch.stack([t.isfinite() for t in tensors]).all(dim=0)
    return [t[keep] for t in tensors] if not keep.all() else list(tensors)


def chunks(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yields the slices that `pieces` yields: all as float64, or all as complex128 if any of the tensors is complex."""
    wide = torch.complex128 if any(t.is_complex() for t in tensors) else torch.float64
    for parts in pieces(*tensors):
        yield tuple(part.to(wide) for part in parts)


def pieces(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yields slices of the tensors: flat, of at most CHUNK elements, or CUDA_CHUNK on a GPU.

    The tensors are broadcast to the shape of the first tensor, and the slices are moved to its device. A tensor without
    dimensions is not broadcast: it is yielded as a whole with each slice of the others.
    """
    first = tensors[0]
    flat = [t if t.ndim == 0 else t.expand(first.shape).reshape(-1) for t in tensors]
    size = CUDA_CHUNK if first.is_cuda else CHUNK
    for start in range(0, first.numel(), size):
        yield tuple((t if t.ndim == 0 else t[start : start + size]).to(first.device) for t in flat)


def _mask(test: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> torch.Tensor:
    parts = [test(*chunk).reshape(-1) for chunk in chunks(*tensors)]
    flat = torch.cat(parts) if parts else torch.zeros(0, dtype=torch.bool, device=tensors[0].device)
    return flat.reshape(tensors[0].shape)
